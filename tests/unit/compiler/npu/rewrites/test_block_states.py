"""Caches in blocks of lanes: attention on the NPU with onnxruntime's bytes, and states as users see them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common import c_programs, onnx_models
from tests.reference import quantized_ops as reference
from tilewright import zoo
from tilewright.compiler.graph.graph import Graph, Node, Quant, State, Tensor
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.export.c_program import export_c
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep, NpuStep, Program, Window
from tilewright.zoo.llama import prompts

SIZES: dict[str, Any] = {"layers": 2, "width": 96, "heads": 3, "kv_heads": 1, "hidden": 128, "window": 32}
"""Heads of two blocks of channels, each half of which is one, and a cache of two blocks of rows."""
ENTRIES = {"prefill": {"input_ids": [1, 32]}, "decode": {"input_ids": [1, 1]}}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build_quantized("micro_llama", context=64, whole=True, **SIZES)


@pytest.fixture(scope="module")
def decode(model: onnx.ModelProto) -> Program:
    return tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", cache=False)


def feeds(position: int, token: int) -> dict[str, np.ndarray]:
    return {"input_ids": np.array([[token]]), "position_ids": np.array([[position]])}


def cpu_ops(program: Program) -> list[str]:
    return [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]


@pytest.mark.medium
def test_tokens_and_states_are_onnxruntimes(model: onnx.ModelProto, decode: Program) -> None:
    """Both simulators, past the end of the cache, from a program that was written and read."""
    assert sum(isinstance(step, NpuStep) for step in decode.steps) == 1
    assert not cpu_ops(decode)
    program = Program.from_bytes(decode.to_bytes())
    program.trusted = True
    device, timed = tw.Device("functional"), tw.Device("cycle")
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    for position, token in enumerate(np.random.default_rng(0).integers(96, size=36).tolist()):
        outputs = onnx_models.run(model, feeds(position, token) | state)
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        logits = device.run(program, feeds(position, token))["logits"]
        np.testing.assert_array_equal(logits, outputs["logits"])
        if position < 2:
            np.testing.assert_array_equal(timed.run(program, feeds(position, token))["logits"], logits)
    kept = device.states(program)
    for name, value in state.items():
        info = next(x.begin for x in program.states if x.name == name)
        assert kept[name].shape == value.shape and isinstance(info.scale, float) and isinstance(info.zero_point, int)
        np.testing.assert_allclose((kept[name].astype(np.float32) - info.zero_point) * np.float32(info.scale), value)


@pytest.mark.medium
def test_states_are_saved_and_restored(decode: Program) -> None:
    device = tw.Device("functional")
    first = [device.run(decode, feeds(i, 5 + i))["logits"] for i in range(3)]
    kept = device.states(decode)
    fourth = device.run(decode, feeds(3, 50))["logits"]
    device.reset_state(decode)
    np.testing.assert_array_equal(device.run(decode, feeds(0, 5))["logits"], first[0])
    device.reset_state(decode, kept)
    np.testing.assert_array_equal(device.run(decode, feeds(3, 50))["logits"], fourth)
    other = tw.Device("functional")
    other.reset_state(decode, kept)
    np.testing.assert_array_equal(other.run(decode, feeds(3, 50))["logits"], fourth)


@pytest.mark.medium
def test_entry_points_share_them(model: onnx.ModelProto) -> None:
    program = tw.compile_program(model, states="auto", entries=ENTRIES, cache=False)
    device, tokens = tw.Device("functional"), np.random.default_rng(1).integers(96, size=(1, 32))
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    prompt = {"input_ids": tokens, "position_ids": np.arange(32)[None]}
    outputs = onnx_models.run(model, prompt | state)
    np.testing.assert_array_equal(device.run(program, prompt, entry="prefill")["logits"], outputs["logits"])
    state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
    outputs = onnx_models.run(model, feeds(32, 7) | state)
    np.testing.assert_array_equal(device.run(program, feeds(32, 7), entry="decode")["logits"], outputs["logits"])
    turns = {name: sum(isinstance(s, NpuStep) for s in program.entry(name).steps) for name in ENTRIES}
    assert turns == {"prefill": 3, "decode": 1}
    windows = Program.from_bytes(program.to_bytes()).windows
    assert windows[0] == Window(3, "position_ids", 32, 16) and {
        (w.tensor, w.period, w.stride, w.rows, w.space) for w in windows[1:]
    } == {
        ("position_ids", 64, 32, 64, "constant"),
        ("position_ids", 64, 32, 32, "constant"),
        ("input_ids", 96, 96, 96, "constant"),
    }


@pytest.mark.medium
def test_rows_of_one_beat(model: onnx.ModelProto, decode: Program) -> None:
    """The window of a machine whose vectors have 4 bytes, as its bus has."""
    config = PRESETS["tiny"].with_(name="tiny_rows", row_unit=1)
    program = tw.compile_program(model, config, shapes={"input_ids": [1, 1]}, states="auto", cache=False)
    assert program.windows[0] == Window(3, "position_ids", 32, 4) and not cpu_ops(program)
    small, base = tw.Device("functional"), tw.Device("functional")
    for position in range(34):
        given = feeds(position, 3 * position % 96)
        np.testing.assert_array_equal(small.run(program, given)["logits"], base.run(decode, given)["logits"])


@pytest.mark.medium
@pytest.mark.parametrize("others", [{"window": 24}, {"width": 24}, {"whole": False}])
def test_caches_that_stay_plain(others: dict[str, Any]) -> None:
    """Rows that fill no block, heads that fill none, and attention that is not the NPU's."""
    model = zoo.build_quantized("micro_llama", **{"context": 64, "whole": True, **SIZES, "layers": 1, **others})
    program = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", cache=False)
    assert all(x.begin.relayout is None for x in program.states)


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
const tw_device *tw_open_device(void);
int main(int argc, char **argv) {
    static tw_instance t;
    const tw_program *p = &net_program;
    FILE *out = fopen(argv[argc - 1], "wb");
    uint8_t *raw = malloc(tw_memory_bytes(p) + 64);
    if (tw_init(&t, p, tw_open_device(), raw + (64 - (uintptr_t)raw % 64) % 64)) return 1;
    for (int64_t i = 0; i < 4; i++) {
        int64_t position = 30 + i % 3, token = 7 * position % 96;
        memcpy(tw_data(&t, &p->inputs[0]), &token, 8);
        memcpy(tw_data(&t, &p->inputs[1]), &position, 8);
        if (i == 3 && tw_reset(&t)) return 2;
        if (tw_run(&t)) return 3;
        fwrite(tw_data(&t, p->outputs), 1, p->outputs[0].nbytes, out);
    }
    return fclose(out);
}
"""
"""Three tokens, over the end of the cache, and the first one again."""


@pytest.mark.medium
def test_programs_in_c(model: onnx.ModelProto, decode: Program, tmp_path: Path) -> None:
    """The runtime in C moves windows, keeps states in the NPU's memory and gives the logits' steps."""
    host = "x86_64-linux"
    program = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", host=host, cache=False)
    assert not cpu_ops(program)
    export_c(program, tmp_path, "net")
    (tmp_path / "main.c").write_text(MAIN)
    binary = c_programs.build(tmp_path, host, "net", device=True)
    start = c_programs.launcher(host)
    if start is None:
        pytest.skip(f"no {host} here")
    command = [*start, str(binary), str(tmp_path / "out.bin")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        c_programs.serve(process.stdout, process.stdin, program)
        process.stdin.close()
        assert process.wait(60) == 0
    steps = np.fromfile(tmp_path / "out.bin", np.int8).reshape(4, -1)
    device, info = tw.Device("functional"), program.outputs[0]
    assert isinstance(info.scale, float) and isinstance(info.zero_point, int)
    for position, found in zip((30, 31, 32), steps, strict=False):
        logits = device.run(decode, feeds(position, 7 * position % 96))["logits"].reshape(-1)
        np.testing.assert_array_equal((found - np.float32(info.zero_point)) * np.float32(info.scale), logits)
    np.testing.assert_array_equal(steps[3], steps[0])


@pytest.mark.medium
@pytest.mark.parametrize("in_place", [True, False])
def test_the_cpu_puts_rows_in_too(in_place: bool) -> None:
    """A row goes where the reference puts it, in a cache that changes in place and in a copy of it."""
    graph, random = Graph("put"), np.random.default_rng(2)
    quant = Quant.of(np.float32(0.5), 3)
    for name, shape, dtype in (
        ("cache", (4, 8, 16), np.int8),
        ("new", (1, 2, 1, 32), np.int8),
        ("row", (1, 1, 1), np.int64),
    ):
        graph.add(Tensor(name, shape, np.dtype(dtype), quant=quant if dtype == np.int8 else None))
        graph.inputs.append(name)
    y = graph.like(graph.tensor("cache"), "y", (4, 8, 16))
    graph.nodes.append(Node.of(QPut(position="row"), ["cache", "new", "row"], [y], "put"))
    graph.outputs.append(y)
    cache, new = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 8, 16), (1, 2, 1, 32)))
    given = {"cache": cache, "new": new, "row": np.array([[[5]]])}
    expected = reference.run(graph, given)[y]
    if in_place:
        graph.states.append(State("cache", "cache", y, cache))
    program = compile_graph(graph, PRESETS["base"], CompileOptions(cpu_only=True))
    assert cpu_ops(program) == ["QPut"]
    device = tw.Device("functional")
    given = {name: value for name, value in given.items() if name != "cache" or not in_place}
    found = device.run(program, given)
    np.testing.assert_array_equal(device.states(program)["cache"] if in_place else found[y], expected)
