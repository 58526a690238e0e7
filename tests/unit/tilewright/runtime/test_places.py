"""Inputs whose values are places along an axis: what onnxruntime refuses is refused in one line, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of, session
from tilewright import zoo
from tilewright.errors import InputError
from tilewright.generate import DECODE, PREFILL, LanguageModel

X = np.arange(12, dtype=np.float32).reshape(4, 3)
CONSTANTS = {
    "x": X,
    "u": np.ones((1, 3), np.float32),
    "zero": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "two": np.array(2, np.int64),
    "steps": np.arange(3, dtype=np.int64),
    "shape": np.array([2, 3], np.int64),
    "zeros": np.zeros((3, 1), np.int64),
    "cache": np.zeros((1, 4, 3), np.float32),
    "rows": np.ones((1, 2, 3), np.float32),
}

# What leads from the input `i` to `y`, its shape and type, and values beside where onnxruntime begins to refuse.
Nodes = list[tuple[str, list[str], list[str], dict[str, Any]]]
CASES: dict[str, tuple[Nodes, tuple[int, ...], type, list[int]]] = {
    "Gather": ([("Gather", ["x", "i"], ["y"], {})], (), np.int64, [-5, -4, 3, 4]),
    "columns": ([("Gather", ["x", "i"], ["y"], {"axis": -1})], (2,), np.int32, [-4, -3, 2, 3]),
    "GatherElements": ([("GatherElements", ["x", "i"], ["y"], {"axis": 1})], (4, 1), np.int64, [-4, -3, 2, 3]),
    "GatherND": ([("GatherND", ["x", "i"], ["y"], {"batch_dims": 1})], (4, 1), np.int64, [-4, -3, 2, 3]),
    "ScatterElements": ([("ScatterElements", ["x", "i", "u"], ["y"], {})], (1, 3), np.int64, [-5, -4, 3, 4]),
    "ScatterND": ([("ScatterND", ["x", "i", "u"], ["y"], {})], (1, 1), np.int64, [-5, -4, 3, 4]),
    "TensorScatter": ([("TensorScatter", ["cache", "rows", "i"], ["y"], {"axis": 1})], (1,), np.int64, [-1, 0, 2, 3]),
    "a cache that goes round": (
        [("TensorScatter", ["cache", "rows", "i"], ["y"], {"axis": 1, "mode": "circular"})],
        (1,), np.int64, [-1, 0, 3, 9],
    ),
    "ReverseSequence": (
        [("ReverseSequence", ["x", "i"], ["y"], {"batch_axis": 1, "time_axis": 0})],
        (3,), np.int64, [-1, 0, 4, 5],
    ),
    "behind moves": (
        [
            ("Cast", ["i"], ["long"], {"to": 7}),
            ("Unsqueeze", ["long", "one"], ["column"], {}),
            ("Expand", ["column", "shape"], ["wide"], {}),
            ("GatherElements", ["x", "wide"], ["y"], {}),
        ],
        (2,), np.int32, [-5, -4, 3, 4],
    ),
    "behind an offset": (
        [("Add", ["two", "i"], ["moved"], {}), ("Gather", ["x", "moved"], ["y"], {})], (3,), np.int64, [-7, -6, 1, 2],
    ),
    "before a start": (
        [("Sub", ["i", "two"], ["moved"], {}), ("Gather", ["x", "moved"], ["y"], {})], (3,), np.int64, [-3, -2, 5, 6],
    ),
    "the first of several rows": (
        [("Add", ["i", "steps"], ["all"], {}), ("Gather", ["x", "all"], ["y"], {})], (), np.int64, [-5, -4, 1, 2],
    ),
    "one of two axes": (
        [("Concat", ["i", "zeros"], ["both"], {"axis": 1}), ("GatherND", ["x", "both"], ["y"], {})],
        (3, 1), np.int64, [-5, -4, 3, 4],
    ),
    "two readers": (
        [
            ("Gather", ["x", "i"], ["row"], {}), ("Gather", ["u", "i"], ["other"], {"axis": 1}),
            ("Sub", ["row", "other"], ["y"], {}),
        ],
        (3,), np.int64, [-4, -3, 2, 3],
    ),
    "within a circle": (
        [("Mod", ["i", "two"], ["in"], {}), ("Gather", ["x", "in"], ["y"], {})], (), np.int64, [-9, 0, 4, 99],
    ),
    "some of them": (
        [("Slice", ["i", "zero", "one"], ["part"], {}), ("Gather", ["x", "part"], ["y"], {})], (2,), np.int64, [9],
    ),
    "OneHot": ([("OneHot", ["i", "two", "pair"], ["y"], {})], (2,), np.int64, [-9, 0, 9]),
}  # fmt: skip


def refuses(model: ModelProto, value: np.ndarray) -> bool:
    try:
        session(model).run(None, {"i": value})
    except Exception as error:  # of several classes of onnxruntime
        assert "Non-zero status code returned while running" in str(error)
        return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_refused_is_what_onnxruntime_refuses(name: str) -> None:
    nodes, shape, dtype, values = CASES[name]
    constants = CONSTANTS | {"pair": np.array([0, 1], np.float32)}
    constants = {n: v for n, v in constants.items() if any(n in inputs for _, inputs, _, _ in nodes)}
    made = [helper.make_node(op, inputs, outputs, **attrs) for op, inputs, outputs, attrs in nodes]
    model = model_of(made, {"i": np.zeros(shape, dtype)}, ["y"], constants, opset=24)
    program = tw.compile_program(model, "tiny", cpu_only=True)
    with tw.Device("functional") as device:
        for value in values:
            given = np.zeros(shape, dtype)
            given[(-1,) * len(shape)] = value
            if refuses(model, given):
                with pytest.raises(InputError, match=rf"input 'i' must be within -?\d+\.\.\d+, not {value}"):
                    device.run(program, {"i": given})
            else:
                device.run(program, {"i": given})
        for seed in range(3 if name != "some of them" else 0):  # what is chosen at random is not refused
            given = tw.random_inputs(program, seed)["i"]
            assert not refuses(model, given)
            device.run(program, {"i": given})


@pytest.mark.medium
def test_tokens_and_positions_of_a_decoder() -> None:
    language = LanguageModel.load(zoo.build_quantized("micro_llama", **zoo.ZOO["micro_llama"].small), "base")
    program, last = language.program, language.context - 1
    position = {"position_ids": np.array([[last]])}
    with tw.Device("functional") as device:
        device.run(program, {"input_ids": np.array([[language.tokens - 1]]), **position}, entry=DECODE)
        kept = device.states(program)
        with pytest.raises(InputError) as error:
            device.run(program, {"input_ids": np.array([[language.tokens]]), **position}, entry=DECODE)
        assert f"input 'input_ids' must be within -{language.tokens}..{language.tokens - 1}, not" in str(error.value)
        assert "\n" not in str(error.value)
        with pytest.raises(InputError, match=f"'position_ids' must be within -{last + 1}..{last}, not {last + 1}"):
            device.run(
                program, {"input_ids": np.zeros((1, 1), int), "position_ids": np.array([[last + 1]])}, entry=DECODE
            )
        ids = np.zeros((1, language.prefill), np.int64)
        ids[0, 2:4] = 999
        with pytest.raises(InputError, match=r"not 999 \(at \[0, 2\], and 1 more\)"):
            device.run(program, {"input_ids": ids, "position_ids": np.arange(language.prefill)[None]}, entry=PREFILL)
        for name, value in device.states(program).items():  # a run that is refused changes nothing
            np.testing.assert_array_equal(value, kept[name])
