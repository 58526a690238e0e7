"""Variables against LiteRT, run after run: the state that a run leaves is what the next one begins with."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common import c_programs, needs
from tests.common.tflite_models import Model, Op, T
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.tflite import import_tflite
from tilewright.compiler.importer.tflite.part import survey
from tilewright.compiler.importer.tflite.schema import read
from tilewright.isa.program import Program

STEPS = 20


def handle(name: str) -> list[Op]:
    return [Op("VAR_HANDLE", [], [name], ("VarHandleOptions", {"Container": "", "SharedName": name}))]


def stream(dtype: str = "int8", kept: int = 4) -> Model:
    """A streaming layer: the rows of the last runs stand before those of this one, and are convolved together; the
    second variable counts runs."""
    r = np.random.default_rng(kept)
    whole = dtype == "int8"
    like = {"scale": 0.05, "zero": -3} if whole else {}
    rows, c = kept + 2, 8
    weights = r.integers(-127, 128, (16, rows, 1, c)) if whole else r.normal(0, 0.2, (16, rows, 1, c))
    bias = r.integers(-999, 999, 16) if whole else r.normal(0, 0.2, 16)
    resource = lambda name: T(name, (), "resource")
    row = lambda name, n: T(name, (1, n, 1, c), dtype, **like)
    tensors = [
        resource("rows"), resource("count"), row("x", 2), row("old", kept), row("all", rows),
        T("w", (16, rows, 1, c), dtype, 0.01 if whole else None, 0, 0, weights),
        T("b", (16,), "int32" if whole else dtype, 0.0005 if whole else None, 0, 0, bias),
        T("y", (1, 1, 1, 16), dtype, **({"scale": 0.1, "zero": 5} if whole else {})),
        *(T(name, (4,), "int32", data=np.array(value)) for name, value in
          (("begin", [0, 2, 0, 0]), ("end", [0, 0, 0, 0]), ("step", [1, 1, 1, 1]))),
        row("new", kept), T("before", (1,), "int32"), T("one", (1,), "int32", data=np.array([1])),
        T("n", (1,), "int32"), T("again", (1,), "int32"),
    ]  # fmt: skip
    ops = [
        Op("CALL_ONCE", [], [], ("CallOnceOptions", {"InitSubgraphIndex": 1})), *handle("rows"), *handle("count"),
        Op("READ_VARIABLE", ["rows"], ["old"]),
        Op("CONCATENATION", ["old", "x"], ["all"], ("ConcatenationOptions", {"Axis": 1})),
        Op("STRIDED_SLICE", ["all", "begin", "end", "step"], ["new"],
           ("StridedSliceOptions", {"BeginMask": 13, "EndMask": 15})),
        Op("ASSIGN_VARIABLE", ["rows", "new"], []),
        Op("CONV_2D", ["all", "w", "b"], ["y"], ("Conv2DOptions", {"StrideH": 1, "StrideW": 1, "Padding": 1}), 3),
        Op("READ_VARIABLE", ["count"], ["before"]), Op("ADD", ["before", "one"], ["n"], ("AddOptions", {})),
        Op("ASSIGN_VARIABLE", ["count", "n"], []), Op("READ_VARIABLE", ["count"], ["again"]),
    ]  # fmt: skip
    first = [
        resource("rows"), resource("count"),
        T("r0", (1, kept, 1, c), dtype, **like, data=np.zeros((1, kept, 1, c)) - 3),
        T("c0", (1,), "int32", data=np.array([100])),
    ]  # fmt: skip
    assigns = [Op("ASSIGN_VARIABLE", ["rows", "r0"], []), Op("ASSIGN_VARIABLE", ["count", "c0"], [])]
    begin = (first, [*handle("rows"), *handle("count"), *assigns])
    return Model(tensors, ops, ["x"], ["y", "again"], first=begin)


def steps(dtype: str) -> list[np.ndarray]:
    r = np.random.default_rng(0)
    found = r.integers(-128, 128, (STEPS, 1, 2, 1, 8)) if dtype == "int8" else r.normal(0, 1, (STEPS, 1, 2, 1, 8))
    return list(found.astype(dtype))


def by_litert(data: bytes, inputs: list[np.ndarray]) -> list[list[np.ndarray]]:
    """y and the count of every run of one interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    (x,), outputs = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for value in inputs:
        interpreter.set_tensor(x["index"], value)
        interpreter.invoke()
        found.append([np.array(interpreter.get_tensor(o["index"])) for o in outputs])
    return found


def compiled(data: bytes) -> Program:
    program = tw.compile(data, "tiny")
    assert isinstance(program, Program)
    return program


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_state_stays_from_run_to_run(dtype: str) -> None:
    data = stream(dtype).build()
    program = compiled(data)
    assert [t.name for t in program.inputs] == ["x"] and [t.name for t in program.outputs] == ["y", "again"]
    assert {s.name for s in program.states} == {"rows", "count"}
    assert program.npu_macs == (program.macs if dtype == "int8" else 0)
    inputs = steps(dtype)
    with tw.Device("functional") as device:
        for x, (y, count) in zip(inputs, by_litert(data, inputs)):
            found = device.run(program, {"x": x})
            np.testing.assert_allclose(
                found["y"], y, rtol=1e-5 * (dtype == "float32"), atol=1e-5 * (dtype == "float32")
            )
            assert found["again"] == count
        assert found["again"] == 100 + STEPS
        device.reset_state(program)
        assert device.run(program, {"x": inputs[0]})["again"] == 101


@pytest.mark.medium
def test_streams_in_turns_and_other_programs_between_them() -> None:
    data, other = stream().build(), stream(kept=2).build()
    program, second = compiled(data), compiled(other)
    inputs = steps("int8")
    want, want_second = by_litert(data, inputs), by_litert(other, inputs[::-1])
    with tw.Device("functional") as device:
        for x, back, (y, _), (z, _) in zip(inputs, inputs[::-1], want, want_second):
            np.testing.assert_array_equal(device.run(program, {"x": x})["y"], y)
            np.testing.assert_array_equal(device.run(second, {"x": back})["y"], z)
        kept = device.states(program)
        device.reset_state(program)
        np.testing.assert_array_equal(device.run(program, {"x": inputs[0]})["y"], want[0][0])
        device.reset_state(program, kept)
        assert device.run(program, {"x": inputs[0]})["again"] == 101 + STEPS
        with pytest.raises(tw.InputError, match="there is no state 'none'; state 'count' is missing"):
            device.reset_state(program, {"none": np.zeros(1), "rows": kept["rows"]})
        with pytest.raises(tw.InputError, match="state 'count' must be int32, not int64"):
            device.reset_state(program, {**kept, "count": np.zeros(1, np.int64)})


def test_program_file(tmp_path: Path) -> None:
    """The file has the states with their first values, and a version that older readers refuse."""
    program = compiled(stream().build())
    program.save(tmp_path / "p.twp")
    found = Program.load(tmp_path / "p.twp")
    assert found.states == program.states and found.content_hash() == program.content_hash()
    assert program.to_bytes()[8:12] == b"\x02\0\0\0"
    found.states[0].end.shape = (3,)
    with pytest.raises(ValueError, match="ends a run as another tensor"):
        found.check()


def test_check_runs_step_by_step() -> None:
    report = tw.check(stream().build(), config="tiny", keep="all")
    assert report.ok and report.runs == STEPS and "over 20 runs" in report.summary()
    assert {r.name for r in report.rows} >= {"y", "again"}


def test_reference_begins_anew() -> None:
    """Every run of the reference is a first one, unless several are asked for."""
    reference = LiteRtReference(stream().build())
    x = {"x": steps("int8")[0]}
    assert [int(reference.run(x)["again"][0]) for _ in range(2)] == [101, 101]
    assert reference.run(x, 3)["again"].tolist() == [[101], [102], [103]]


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
int main(void) {
    const tw_program *p = &net_program;
    tw_instance t;
    uint8_t *raw = malloc(tw_memory_bytes(p) + TW_ALIGNMENT);
    if (!raw || tw_init(&t, p, NULL, raw + (TW_ALIGNMENT - (uintptr_t)raw % TW_ALIGNMENT) % TW_ALIGNMENT)) return 1;
    while (fread(tw_data(&t, &p->inputs[0]), 1, p->inputs[0].nbytes, stdin) == p->inputs[0].nbytes) {
        if (tw_run(&t)) return 1;
        for (uint32_t i = 0; i < 2; i++) fwrite(tw_data(&t, &p->outputs[i]), 1, p->outputs[i].nbytes, stdout);
    }
    tw_reset(&t);
    if (tw_run(&t)) return 1;
    fwrite(tw_data(&t, &p->outputs[1]), 1, 4, stdout);
    return 0;
}
"""


@pytest.mark.medium
def test_program_in_c(tmp_path: Path) -> None:
    """The C runtime keeps the state, too."""
    data, host = stream("float32").build(), "x86_64-linux"
    if platform.machine() != "x86_64":
        needs.skip(needs.CROSS_COMPILERS, "not a machine of this kind")
    program = tw.compile(data, host=host, cpu_only=True)
    assert isinstance(program, Program)
    tw.export_c(program, tmp_path, "net")
    (tmp_path / "main.c").write_text(MAIN)
    binary = c_programs.build(tmp_path, host, "net", device=False)
    inputs = steps("float32")
    said = subprocess.run([binary], input=b"".join(x.tobytes() for x in inputs), capture_output=True, check=True).stdout
    rows = np.frombuffer(said[:-4], np.float32).reshape(STEPS, 17)
    for row, (y, count) in zip(rows, by_litert(data, inputs)):
        np.testing.assert_allclose(row[:16], y.reshape(-1), rtol=1e-5, atol=1e-5)
        assert row[16:].view(np.int32) == count
    assert np.frombuffer(said[-4:], np.int32) == 101


def test_never_assigned_is_a_constant() -> None:
    model = stream()
    model.ops = [op for op in model.ops if op.inputs != ["count", "n"]]
    program = compiled(model.build())
    assert [s.name for s in program.states] == ["rows"]
    with tw.Device("functional") as device:
        assert device.run(program, {"x": steps("int8")[0]})["again"] == 100


def test_read_before_a_value() -> None:
    model = stream()
    assert model.first is not None
    model.first = (model.first[0], [op for op in model.first[1] if list(op.inputs) != ["count", "c0"]])
    with pytest.raises(UnsupportedError, match="variable 'count' is read before it has a value"):
        import_tflite(model.build())


def test_part_for_a_delegate_leaves_it_to_litert() -> None:
    refused = survey(read(stream().build())).refused
    assert {0, 1, 2, 3, 6, 8, 10, 11} <= refused.keys()
    assert "lives from one run to the next" in refused[0] and "lives from one run to the next" in refused[1]


def test_state_of_another_shape() -> None:
    model = stream()
    model.ops = [
        op if list(op.inputs) != ["rows", "new"] else Op("ASSIGN_VARIABLE", ["rows", "all"], []) for op in model.ops
    ]
    with pytest.raises(CompileError, match=r"begins a run as int8\[1, 4, 1, 8\] and ends it as int8\[1, 6, 1, 8\]"):
        import_tflite(model.build())
