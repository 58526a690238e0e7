"""Elementwise operators broadcast along any axes, at ranks up to 6: TFLite against LiteRT, ONNX against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from onnx import helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.tflite_models import Model, Op, T
from tilewright.checking.litert_reference import LiteRtReference

Shape = tuple[int, ...]


@st.composite
def pairs(draw: st.DrawFn, most: int = 6, one_is_whole: bool = False) -> tuple[Shape, Shape]:
    """Two shapes that broadcast: of any axis, either may have 1 element or, at the front, no axis."""
    whole = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most))
    sides = []
    for k in range(2):
        masks = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        left_out = draw(st.integers(0, len(whole) - 1))
        if one_is_whole and k == 0:
            masks, left_out = [True] * len(whole), 0
        sides.append(tuple(n if kept else 1 for n, kept in zip(whole, masks))[left_out:])
    return sides[0], sides[1]


def run(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    program = tw.compile(model, "tiny")
    with tw.Device("functional") as device:
        return device.run(program, inputs)


def stored(r: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    if dtype == "bool":
        return r.integers(0, 2, shape).astype(bool)
    if dtype == "float32":
        return np.asarray(r.normal(0, 2, shape), np.float32)
    info = np.iinfo(dtype) if dtype != "int32" else np.iinfo(np.int8)
    return r.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


_FLOAT = ("ADD", "SUB", "MUL", "DIV", "POW", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD",
          "EQUAL", "NOT_EQUAL", "GREATER", "LESS_EQUAL", "PRELU")  # fmt: skip
_INTEGER = ("ADD", "SUB", "MUL", "DIV", "POW", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "EQUAL", "LESS")
_PLAIN_BYTES = ("FLOOR_DIV", "FLOOR_MOD")  # LiteRT looks at no scale
_BYTES = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "GREATER", "EQUAL")
_BOOLS = ("LOGICAL_AND", "LOGICAL_OR")
_OPS = [*((op, "float32") for op in _FLOAT), *((op, "int32") for op in _INTEGER), *((op, "bool") for op in _BOOLS),
        *((op, "int8") for op in _PLAIN_BYTES),
        *((op, dtype) for op in _BYTES for dtype in ("int8", "uint8") if (op, dtype) != ("DIV", "int8"))]  # fmt: skip
_COMPARED = ("EQUAL", "NOT_EQUAL", "GREATER", "LESS", "LESS_EQUAL", *_BOOLS)
_OPTIONS = {"MAXIMUM": "MaximumMinimumOptions", "MINIMUM": "MaximumMinimumOptions", "DIV": "DivOptions",
            "ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}  # fmt: skip
_FIRST = ("POW", "PRELU", *_BOOLS)  # there is one version of these


def tflite_of(op: str, dtype: str, shapes: Sequence[Shape], pooled: Sequence[bool]) -> bytes:
    """One op; a pool before a `pooled` operand of rank 4 leaves it in the order in which convolutions compute."""
    tensors, ops, names = [], [], []
    same = op in ("MAXIMUM", "MINIMUM") or (op in _COMPARED)
    for k, shape in enumerate(shapes):
        scale, zero = (0.05, 3) if same or k == 0 else (0.02, 10)
        quant = (scale, zero) if dtype in ("int8", "uint8") else (None, 0)
        tensors.append(T(f"x{k}", shape, dtype, *quant))
        names.append(f"x{k}")
        if len(shape) == 4 and pooled[k] and dtype in ("int8", "uint8", "float32"):
            tensors.append(T(f"p{k}", shape, dtype, *quant))
            window = {"FilterHeight": 1, "FilterWidth": 1, "StrideH": 1, "StrideW": 1}
            ops.append(Op("MAX_POOL_2D", [f"x{k}"], [f"p{k}"], ("Pool2DOptions", window), 2))
            names[-1] = f"p{k}"
    out = np.broadcast_shapes(*shapes)
    kind = "bool" if op in _COMPARED else dtype
    quant = (None, 0) if kind not in ("int8", "uint8") else (0.05, 3) if same else (0.03 if op == "DIV" else 0.3, 5)
    tensors.append(T("y", out, kind, *quant))
    ops.append(Op(op, names, ["y"], (_OPTIONS[op], {}) if op in _OPTIONS else None, 1 if op in _FIRST else 2))
    return Model(tensors, ops, ["x0", "x1"], ["y"]).build()


@pytest.mark.medium
@pytest.mark.parametrize(("op", "dtype"), _OPS)
@settings(max_examples=5)
@given(shapes=pairs(), pooled=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 1 << 30))
@example(shapes=((1, 3, 4, 5), (4, 5)), pooled=(True, False), seed=0)
@example(shapes=((3, 1, 5), (2, 1, 4, 1)), pooled=(False, True), seed=0)
def test_tflite(op: str, dtype: str, shapes: tuple[Shape, Shape], pooled: tuple[bool, bool], seed: int) -> None:
    if op == "PRELU":  # its slope has no more axes than the input, and is a constant or of its shape
        assume(np.broadcast_shapes(*shapes) == shapes[0])
    data, r = tflite_of(op, dtype, shapes, pooled), np.random.default_rng(seed)
    inputs = {f"x{k}": stored(r, shape, dtype) for k, shape in enumerate(shapes)}
    if op == "POW":
        inputs = {name: np.abs(x) % x.dtype.type(7) for name, x in inputs.items()}
    if op in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        inputs["x1"] = np.where(np.abs(inputs["x1"]) < 0.5, inputs["x1"].dtype.type(1), inputs["x1"])
        if dtype == "uint8":
            inputs["x1"] = np.maximum(inputs["x1"], np.uint8(30))
    got, expected = run(data, inputs)["y"], LiteRtReference(data).run(inputs)
    if dtype == "float32" and op not in _COMPARED:
        np.testing.assert_allclose(got, expected["y"], rtol=1e-5, atol=1e-5)
    elif op == "DIV" and dtype != "int32":
        # LiteRT shifts quotients below one step by more bits than an int32 has.
        large = np.abs(got.astype(int) - 5) > 1
        np.testing.assert_allclose(got[large].astype(int), expected["y"][large].astype(int), rtol=0, atol=1)
    else:
        np.testing.assert_array_equal(got, expected["y"])


_ONNX = {"Add": "float32", "Sub": "int64", "Mul": "float32", "Div": "float32", "Pow": "float32", "Max": "float32",
         "Min": "int64", "Mod": "int64", "Less": "float32", "Equal": "int64", "And": "bool", "Xor": "bool",
         "BitwiseAnd": "int64", "PRelu": "float32", "BitShift": "uint64"}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("op", _ONNX)
@settings(max_examples=5)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_onnx(op: str, data: st.DataObject, seed: int) -> None:
    shapes, r = data.draw(pairs(one_is_whole=op == "PRelu")), np.random.default_rng(seed)
    kind = "bool" if _ONNX[op] == "bool" else "float32" if _ONNX[op] == "float32" else "int32"
    feeds = {f"x{k}": stored(r, s, kind).astype(_ONNX[op]) for k, s in enumerate(shapes)}
    if op == "Pow":
        feeds["x0"] = np.abs(feeds["x0"])
    if op in ("Mod", "BitShift"):
        feeds["x1"] = np.abs(feeds["x1"].astype(np.int64) % 11 + 1).astype(_ONNX[op])
    attrs = {"direction": "LEFT"} if op == "BitShift" else {}
    model = onnx_models.model_of([helper.make_node(op, ["x0", "x1"], ["y"], **attrs)], feeds, ["y"], {}, opset=20)
    np.testing.assert_allclose(run(model, feeds)["y"], onnx_models.run(model, feeds)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div", "Max"])
@settings(max_examples=5)
@given(shapes=pairs(), seed=st.integers(0, 1 << 30))
@example(shapes=((1, 3, 4, 5), (3, 4, 1)), seed=0)
def test_onnx_quantised(op: str, dtype: str, shapes: tuple[Shape, Shape], seed: int) -> None:
    """DequantizeLinear, op, QuantizeLinear: Add and Mul are fused by both sides."""
    r = np.random.default_rng(seed)
    feeds = {f"x{k}": stored(r, s, dtype) for k, s in enumerate(shapes)}
    feeds["x1"] = np.maximum(feeds["x1"], np.asarray(60, dtype)) if op == "Div" else feeds["x1"]
    constants = {"z": np.asarray(4, dtype)} | {n: np.float32(v) for n, v in (("s0", 0.05), ("s1", 0.02), ("s2", 0.25))}
    nodes = [helper.make_node("DequantizeLinear", [f"x{k}", f"s{k}", "z"], [f"f{k}"]) for k in (0, 1)]
    nodes += [helper.make_node(op, ["f0", "f1"], ["f"]), helper.make_node("QuantizeLinear", ["f", "s2", "z"], ["y"])]
    model = onnx_models.model_of(nodes, feeds, ["y"], constants, opset=20)
    np.testing.assert_array_equal(run(model, feeds)["y"], onnx_models.run(model, feeds)["y"])
