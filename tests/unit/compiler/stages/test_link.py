"""Entry points: prefill and decode of a language model as one program, with one cache and the weights once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.unit.compiler.graph.test_states import ByOnnxruntime
from tilewright import zoo
from tilewright.compiler.errors import CompileError
from tilewright.compiler.stages.link import link
from tilewright.isa.program import NpuStep, Program, ProgramError
from tilewright.isa.program_check import Unfit

ENTRIES = {"prefill": {"input_ids": [1, 16]}, "decode": {"input_ids": [1, 1]}}


@pytest.fixture(scope="module")
def decoder() -> onnx.ModelProto:
    return zoo.build_quantized("micro_llama", **zoo.ZOO["micro_llama"].small)


@pytest.fixture(scope="module")
def program(decoder: onnx.ModelProto) -> Program:
    return tw.compile_program(decoder.SerializeToString(), "base", states="auto", entries=ENTRIES)


@pytest.fixture(scope="module")
def alone(decoder: onnx.ModelProto) -> dict[str, Program]:
    """Each entry point as a program of its own."""
    return {
        name: tw.compile_program(decoder.SerializeToString(), "base", shapes, states="auto")
        for name, shapes in ENTRIES.items()
    }


@pytest.fixture
def device() -> Iterator[tw.runtime.devices.Runner]:
    with tw.Device("functional") as found:
        yield found


@pytest.mark.medium
def test_prefill_then_decode_as_onnxruntime(
    decoder: onnx.ModelProto, program: Program, device: tw.runtime.devices.Runner
) -> None:
    """A prompt shorter than the prefill: what stands behind it in the cache is not seen before it is overwritten."""
    tokens = np.random.default_rng(2).integers(96, size=24).tolist()
    prompt = np.array([tokens[:5] + [0] * 11])
    logits = device.run(program, {"input_ids": prompt, "position_ids": np.arange(16)[None]}, entry="prefill")["logits"]
    reference = ByOnnxruntime(decoder)
    for position in range(5):
        np.testing.assert_array_equal(logits[0, position], reference.step(tokens[position], position)[0, 0])
    for position in range(5, 24):
        given = {"input_ids": np.array([[tokens[position]]]), "position_ids": np.array([[position]])}
        found = device.run(program, given, entry="decode")["logits"]
        np.testing.assert_array_equal(found, reference.step(tokens[position], position))


@pytest.mark.medium
def test_weights_are_there_once(alone: dict[str, Program], program: Program) -> None:
    sizes = [len(p.constants) for p in alone.values()]
    assert len(program.constants) <= max(sizes), "also where the tiles of the weights are others"
    tiles = [{row.name: row.tile for row in p.layers if row.where == "npu"} for p in alone.values()]
    assert any(
        tiles[0][name].split("px")[1] != tile.split("px")[1] for name, tile in tiles[1].items() if name in tiles[0]
    )
    assert program.host_bytes < sum(p.host_bytes for p in alone.values())
    assert sum(s.name == "past_key_values.0.key" for s in program.states) == 1


@pytest.mark.medium
def test_file(program: Program, tmp_path: Path) -> None:
    program.save(tmp_path / "p.twp")
    found = Program.load(tmp_path / "p.twp")
    assert found.entries == program.entries and found.content_hash() == program.content_hash()
    assert program.to_bytes()[8:12] == b"\x03\0\0\0"
    parts = [found.entry(name) for name in ENTRIES]
    assert sum(len(p.steps) for p in parts) == len(found.steps)
    assert sum(len(p.layers) for p in parts) == len(found.layers)
    assert all(work.step < len(p.steps) for p in parts for work in p.host_work)
    found.entries[1].step_count += 1
    with pytest.raises(Unfit, match="entry point 'decode' has steps"):
        found.check()
    assert found.signed_digest() != program.signed_digest()


@pytest.mark.medium
def test_damaged_states_and_host_work(program: Program) -> None:
    found = Program.from_bytes(program.to_bytes())
    work = found.host_work[0]
    npu = next(i for i, step in enumerate(found.steps) if isinstance(step, NpuStep))
    for wrong, message in (
        (replace(work, step=len(found.steps)), "which is no CPU step"),
        (replace(work, step=npu), "which is no CPU step"),
        (replace(work, work={"vector": float("nan")}), "is {'vector': nan} and"),
        (replace(work, nbytes=-1), "and -1 bytes"),
    ):
        with pytest.raises(Unfit, match=message):
            replace(found, host_work=[wrong]).check()
    with pytest.raises(Unfit, match="two states are called 'past_key"):
        replace(found, states=[*found.states, found.states[0]]).check()


def test_entry_points_are_named(program: Program, device: tw.runtime.devices.Runner) -> None:
    with pytest.raises(ProgramError, match="has several entry points, name one: it has prefill, decode"):
        device.run(program, {})
    with pytest.raises(
        ProgramError, match=r"has no entry point 'encode' \(did you mean decode\?\): it has prefill, decode"
    ):
        device.run(program, {}, entry="encode")
    with pytest.raises(tw.InputError, match="missing input 'input_ids'"):
        device.run(program, {}, entry="decode")


@pytest.mark.medium
def test_states_must_agree(alone: dict[str, Program]) -> None:
    one = alone["decode"]
    first = one.states[0]
    other = replace(one, states=[replace(first, begin=replace(first.begin, scale=0.5)), *one.states[1:]])
    with pytest.raises(CompileError, match=r"entry point 'b' keeps state 'past_key_values.0.key' as int8\[.*scale 0.5"):
        link("model", {"a": one, "b": other}, one.constants)


@pytest.mark.medium
def test_ranges_of_inputs_are_those_of_all(alone: dict[str, Program]) -> None:
    one = alone["decode"]
    a = replace(one, input_ranges={"x": (-1.0, 1.0), "y": (0.0, 2.0)})
    b = replace(one, input_ranges={"x": (-2.0, 0.5)})
    assert link("both", {"a": a, "b": b}, one.constants).input_ranges == {"x": (-1.0, 0.5), "y": (0.0, 2.0)}
