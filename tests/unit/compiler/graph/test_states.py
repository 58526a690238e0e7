"""States of ONNX models: a cache that comes in as an input and goes out as an output becomes memory of the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of, session
from tilewright import zoo
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.states import paired_by_name
from tilewright.isa.program import Program

STEPS = 40


def test_pairs_by_name() -> None:
    inputs = ["ids", "past_key_values.0.key", "past_key_3", "past_value_3", "pastry", "past", "Past.x"]
    outputs = ["logits", "present.0.key", "present_key_3", "present_value_3", "presentry", "present"]
    assert paired_by_name(inputs, outputs) == {
        "past_key_values.0.key": "present.0.key", "past_key_3": "present_key_3", "past_value_3": "present_value_3",
        "past": "present",
    }  # fmt: skip


@pytest.fixture(scope="module")
def decoder() -> onnx.ModelProto:
    return zoo.build_quantized("micro_llama", **zoo.ZOO["micro_llama"].small)


@pytest.fixture(scope="module")
def program(decoder: onnx.ModelProto) -> Program:
    shapes = {"input_ids": [1, 1]}
    return tw.compile_program(decoder.SerializeToString(), "tiny", shapes, states="auto")


def inputs(token: int, position: int) -> dict[str, np.ndarray]:
    return {"input_ids": np.array([[token]]), "position_ids": np.array([[position]])}


class ByOnnxruntime:
    """The model step by step, its cache handed back to it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.session = session(model)
        self.names = [x.name for x in self.session.get_outputs()]
        given = self.session.get_inputs()
        self.cache = {x.name: np.zeros(x.shape, np.float32) for x in given if x.name.startswith("past")}

    def step(self, token: int, position: int) -> np.ndarray:
        found = dict(zip(self.names, self.session.run(None, inputs(token, position) | self.cache), strict=True))
        self.cache = {name: found[name.replace("past_key_values", "present")] for name in self.cache}
        logits: np.ndarray = found["logits"]
        return logits


@pytest.mark.medium
def test_cache_is_bytes_in_one_place(program: Program) -> None:
    assert [t.name for t in program.inputs] == ["input_ids", "position_ids"]
    assert [t.name for t in program.outputs] == ["logits"]
    assert [s.name for s in program.states][:2] == ["past_key_values.0.key", "past_key_values.0.value"]
    for state in program.states:
        begin, end = program.buffer(state.begin.buffer), program.buffer(state.end.buffer)
        assert (begin.space, begin.offset, state.begin.dtype) == (end.space, end.offset, "int8")
    kernels = [line for step in program.steps if step.kind == "cpu" for line in step.kernels]  # type: ignore[union-attr]
    assert sum("ScatterElements" in line for line in kernels) == len(program.states), "one each, that writes new rows"


@pytest.mark.medium
def test_step_by_step_as_onnxruntime(decoder: onnx.ModelProto, program: Program) -> None:
    """Steps equal onnxruntime's past the end of the cache, in two streams that take turns and with another program in
    between."""
    reference, other = ByOnnxruntime(decoder), tw.compile_program("examples/digits/digits_int8.onnx", "tiny")
    random = np.random.default_rng(0)
    with tw.Device("functional") as device:
        parked: dict[str, np.ndarray] | None = None
        for position in range(STEPS):
            token = int(random.integers(96))
            np.testing.assert_array_equal(
                device.run(program, inputs(token, position))["logits"], reference.step(token, position)
            )
            if position == 20:
                device.run(other, tw.random_inputs(other))
            if position == 30:
                parked = device.states(program)
                device.reset_state(program)
                device.run(program, inputs(3, 0))
                device.reset_state(program, parked)
        assert parked is not None
        for name, value in device.states(program).items():
            info = next(s.begin for s in program.states if s.name == name)
            reals = (value.astype(np.float32) - np.float32(info.zero_point)) * np.float32(info.scale)
            np.testing.assert_array_equal(reals, reference.cache[name])
        device.reset_state(program)
        fresh = ByOnnxruntime(decoder)
        np.testing.assert_array_equal(device.run(program, inputs(3, 0))["logits"], fresh.step(3, 0))


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter_in_place(mode: str) -> None:
    """A float cache, read behind the op that puts rows into it; batches begin at rows of their own."""
    nodes = [
        helper.make_node("TensorScatter", ["past_key", "new", "first"], ["present_key"], "put", axis=1, mode=mode),
        helper.make_node("ReduceSum", ["present_key"], ["sum"], "sum", keepdims=0),
    ]
    given: dict[str, Any] = {"past_key": [2, 5, 3], "new": [2, 2, 3], "first": (TensorProto.INT64, [2])}
    model = model_of(nodes, given, {"sum": [], "present_key": [2, 5, 3]}, opset=24)
    program = tw.compile_program(model.SerializeToString(), "tiny", states="auto")
    assert program.buffer("past_key").offset == program.buffer("present_key").offset
    expected = np.zeros((2, 5, 3), np.float32)
    random = np.random.default_rng(1)
    with tw.Device("functional") as device:
        for step in range(6):
            new = random.standard_normal((2, 2, 3), np.float32)
            first = np.array([step, 2 * step]) % (5 if mode == "circular" else 4)
            for batch in range(2):
                expected[batch, (first[batch] + np.arange(2)) % 5] = new[batch]
            found = device.run(program, {"new": new, "first": first})
            np.testing.assert_allclose(found["sum"], expected.sum(), rtol=1e-5)
            np.testing.assert_array_equal(device.states(program)["past_key"], expected)


def grown(last: int) -> bytes:
    nodes = [helper.make_node("Concat", ["past", "x"], ["present"], "join", axis=0)]
    return bytes(model_of(nodes, {"past": [4, 2], "x": [last, 2]}, {"present": [4 + last, 2]}).SerializeToString())


def test_what_cannot_be_a_state() -> None:
    with pytest.raises(CompileError, match=r"state 'past' begins a run as float32\[4, 2\] and ends it, as 'present', "):
        tw.compile_program(grown(1), "tiny", states="auto")
    with pytest.raises(CompileError, match="there is no output 'none'; there are present"):
        tw.compile_program(grown(1), "tiny", states={"past": "none"})


@pytest.mark.parametrize("axis", [-2, 1])
def test_more_new_rows_than_a_cache_has(axis: int) -> None:
    """New rows beyond the cache are refused: they would overwrite each other, in no order that ONNX defines."""
    nodes = [
        helper.make_node("TensorScatter", ["past", "x"], ["put"], axis=axis),
        helper.make_node("Identity", ["put"], ["present"]),
    ]
    model = model_of(nodes, {"past": [1, 4, 2], "x": [1, 5, 2]}, {"present": [1, 4, 2]}, opset=24)
    with pytest.raises(CompileError, match=r"state 'past' has \[1, 4, 2\] values; a run that puts \[1, 5, 2\] new "):
        tw.compile_program(model.SerializeToString(), "tiny", states="auto")


def test_value_read_before_and_after_moves_at_the_end_of_the_run() -> None:
    """The value before is an output, too: it must not be overwritten."""
    nodes = [
        helper.make_node("ScatterElements", ["past", "row", "x"], ["present"], "put", axis=0),
        helper.make_node("Sub", ["present", "past"], ["change"], "change"),
    ]
    given: dict[str, Any] = {"past": [4, 2], "row": (TensorProto.INT64, [1, 2]), "x": [1, 2]}
    model = model_of(nodes, given, {"present": [4, 2], "change": [4, 2]})
    program = tw.compile_program(model.SerializeToString(), "tiny", states={"past": "present"})
    assert program.buffer("past").offset != program.buffer("present").offset
    with tw.Device("functional") as device:
        for value in (1.0, 5.0, 7.0):
            row = {"row": np.full((1, 2), 2), "x": np.full((1, 2), value, np.float32)}
            before = device.states(program)["past"]
            change = device.run(program, row)["change"]
            np.testing.assert_array_equal(device.states(program)["past"], before + change)
            assert before[2, 0] + change[2, 0] == value
