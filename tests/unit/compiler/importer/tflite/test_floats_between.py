"""Files that are floats in part: QUANTIZE of floats, and operators between DEQUANTIZE and QUANTIZE, by LiteRT's rules.

onnxruntime makes integer ops of the like, and one pair of two; LiteRT computes each operator as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tests.unit.compiler.importer.tflite.test_operators import compare
from tilewright.checking.litert_reference import LiteRtReference

_WINDOW = {"Padding": 1, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [0.05, 0.3, 1 / 15, 2 / 255, 0.75, 12.3])
def test_quantize_of_floats_on_ties(scale: float, dtype: str) -> None:
    """QUANTIZE multiplies by the reciprocal of the scale: around every tie, beyond the limits, NaN and infinities."""
    ties = np.arange(-600, 600).astype(np.float32) * np.float32(0.5) * np.float32(scale)
    near = (ties.view(np.int32)[:, None] + np.arange(-2, 3)).astype(np.int32).view(np.float32).reshape(-1)
    x = np.concatenate([near, np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-45], np.float32)])
    quantize = Op("QUANTIZE", ["x"], ["y"], ("QuantizeOptions", {}))
    data = Model([T("x", x.shape, "float32"), T("y", x.shape, dtype, scale, 3)], [quantize], ["x"], ["y"]).build()
    expected = LiteRtReference(data).run({"x": x})["y"]
    found = tw.Device("functional").run(tw.compile(data, "tiny"), {"x": x})["y"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantize_of_floats_by_reference_kernels(dtype: str) -> None:
    """No operator of the file computes bytes, one makes 16 bits: ties of the quotient go away from zero."""
    for scale in (0.05, 0.3, 1 / 15):
        ties = np.arange(-600, 600).astype(np.float32) * np.float32(0.5) * np.float32(scale)
        x = (ties.view(np.int32)[:, None] + np.arange(-1, 2)).astype(np.int32).view(np.float32).reshape(-1)
        x = x[np.isfinite(x)]  # a unit below 0 is NaN, which these kernels do not care for
        tensors = [T("x", x.shape, "float32"), T("a", x.shape, dtype, scale, 3), T("y", x.shape, "int16", scale)]
        ops = [Op("QUANTIZE", ["x"], ["a"]), Op("QUANTIZE", ["a"], ["y"], ("QuantizeOptions", {}), 2)]
        data = Model(tensors, ops, ["x"], ["a", "y"]).build()
        reference = LiteRtReference(data)
        assert reference.by_reference_kernels
        found = tw.Device("functional").run(tw.compile(data, "tiny"), {"x": x})
        for name, value in reference.run({"x": x}).items():
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_two_pairs_are_not_merged(dtype: str) -> None:
    for zero in (0, 3):
        float_ = lambda name: T(name, (16, 16), "float32")
        tensors = [float_("x"), T("a", (16, 16), dtype, 0.05, zero), float_("b"), T("c", (16, 16), dtype, 0.1, 7)]
        ops = [Op("QUANTIZE", ["x"], ["a"]), Op("DEQUANTIZE", ["a"], ["b"]), Op("QUANTIZE", ["b"], ["c"]),
               Op("DEQUANTIZE", ["c"], ["y"])]  # fmt: skip
        data = Model([*tensors, float_("y")], ops, ["x"], ["y"]).build()
        x = (np.arange(-128, 128) * np.float32(0.025)).astype(np.float32).reshape(16, 16)
        expected = LiteRtReference(data).run({"x": x})["y"]
        found = tw.Device("functional").run(tw.compile(data, "tiny"), {"x": x})["y"]
        np.testing.assert_array_equal(found, expected)


def between(
    op: str, dtype: str, y: Sequence[int], options: Any = None, constants: Sequence[T] = (), operands: int = 1,
    shape: Sequence[int] = (1, 16, 16, 4), scales: Sequence[float] = (0.25, 0.375, 0.5),
) -> bytes:  # fmt: skip
    """Bytes -> DEQUANTIZE -> an operator of floats -> QUANTIZE. `scales` of two operands and the result."""
    zero = 0 if dtype == "int8" else 128
    given = ((scales[0], zero + 3), (scales[1], zero - 2))[:operands]
    tensors = [T(f"q{k}", shape, dtype, *quant) for k, quant in enumerate(given)]
    reals = [T(f"x{k}", shape, "float32") for k in range(operands)]
    ops = [Op("DEQUANTIZE", [q.name], [x.name], None, 2) for q, x in zip(tensors, reals, strict=True)]
    ops.append(Op(op, [t.name for t in (*reals, *constants)], ["f"], options))
    ops.append(Op("QUANTIZE", ["f"], ["y"], ("QuantizeOptions", {})))
    results = [T("f", y, "float32"), T("y", y, dtype, scales[2], zero + 4)]
    return Model([*tensors, *reals, *constants, *results], ops, [t.name for t in tensors], ["y"]).build()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", [0, 1, 3])
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
def test_sums_and_products(op: str, activation: int, dtype: str) -> None:
    options = (f"{op.capitalize()}Options", {"FusedActivationFunction": activation})
    data = between(op, dtype, (1, 16, 16, 4), options, operands=2, scales=(0.05, 0.075, 0.1))
    compare(data, np.random.default_rng(activation))


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_stay_floats(dtype: str) -> None:
    """Sums of multiples of 1/16 are exact. With weights rounded to int8 a quarter of the results would be others."""
    r = np.random.default_rng(0)
    multiples = lambda *shape: (r.integers(-40, 40, shape) / 16).astype(np.float32)
    floats = lambda name, value: T(name, value.shape, "float32", data=value)
    bias = floats("b", multiples(6))
    steps = {"StrideW": 1, "StrideH": 1}
    convolution = [floats("w", multiples(6, 1, 1, 4)), bias]
    compare(between("CONV_2D", dtype, (1, 16, 16, 6), ("Conv2DOptions", steps), convolution), r)
    product = [floats("w", multiples(6, 4)), bias]
    options = ("FullyConnectedOptions", {})
    compare(between("FULLY_CONNECTED", dtype, (64, 6), options, product, shape=(64, 4)), r)


def test_the_note_of_such_an_operator() -> None:
    options = ("AddOptions", {})
    program = tw.compile(between("ADD", "int8", (1, 16, 16, 4), options, operands=2), "tiny")
    (note,) = (note for note in program.notes if "runs on the CPU" in note)
    assert note.endswith("the file has it in floats, between DEQUANTIZE and QUANTIZE")


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_moves_and_extrema(dtype: str) -> None:
    """Moves and extrema are done with bytes, requantised by a table where scales differ."""
    r = np.random.default_rng(0)
    compare(between("MAX_POOL_2D", dtype, (1, 8, 8, 4), ("Pool2DOptions", _WINDOW)), r)
    compare(between("RELU", dtype, (1, 16, 16, 4)), r)
    compare(between("CONCATENATION", dtype, (1, 16, 16, 8), ("ConcatenationOptions", {"Axis": 3}), operands=2), r)
    shape = T("s", (2,), "int32", data=np.array([16, 64]))
    compare(between("RESHAPE", dtype, (16, 64), ("ReshapeOptions", {}), [shape]), r)
    edges = T("e", (4, 2), "int32", data=np.array([[0, 0], [1, 1], [0, 1], [0, 0]]))
    compare(between("PAD", dtype, (1, 18, 17, 4), ("PadOptions", {}), [edges]), r)
    # -1.375 is a tie of the result's steps, and none of the operand's.
    value = T("v", (1,), "float32", data=np.array([-1.375], np.float32))
    compare(between("PADV2", dtype, (1, 18, 17, 4), ("PadV2Options", {}), [edges, value]), r)
