"""Operators that random programs do not have, against numpy by TOSA's specification, and IREE where it is installed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import numpy as np
import pytest

import tilewright as tw
from tests.unit.compiler.importer.tosa.random_graphs import typed
from tilewright.common.errors import TilewrightError

pytest.importorskip("xdsl")
_NAMES = {
    np.dtype(np.int8): "i8", np.dtype(np.int16): "i16", np.dtype(np.int32): "i32", np.dtype(np.bool_): "i1",
    np.dtype(np.float32): "f32", np.dtype(np.int64): "i48",
}  # fmt: skip
_R = np.random.default_rng(5)


def _type(array: np.ndarray) -> str:
    return typed(array.shape, _NAMES[array.dtype])


def _const(name: str, array: np.ndarray) -> str:
    value = str(array.tolist()).replace("True", "true").replace("False", "false")
    return f'%{name} = "tosa.const"() <{{values = dense<{value}> : {_type(array)}}}> : () -> {_type(array)}'


def _sizes(name: str, values: list[int]) -> str:
    n = len(values)
    return f'%{name} = "tosa.const_shape"() <{{values = dense<{values}> : tensor<{n}xindex>}}> : () -> !tosa.shape<{n}>'


def _program(
    op: str, given: Mapping[str, np.ndarray], fixed: Mapping[str, np.ndarray | list[int]], result: str, attrs: str = ""
) -> str:
    """A function of one operation: its arguments, then constants."""
    arguments = ", ".join(f"%{n}: {_type(a)}" for n, a in given.items())
    lines = [_sizes(n, a) if isinstance(a, list) else _const(n, a) for n, a in fixed.items()]
    names = ", ".join(f"%{n}" for n in (*given, *fixed))
    types = ", ".join(
        f"!tosa.shape<{len(a)}>" if isinstance(a, list) else _type(a) for a in (*given.values(), *fixed.values())
    )
    lines.append(f'%y = "tosa.{op}"({names}) <{{{attrs}}}> : ({types}) -> {result}')
    return f"func.func @main({arguments}) -> {result} {{\n" + "\n".join([*lines, f"return %y : {result}"]) + "\n}\n"


def _run(text: str, given: Mapping[str, np.ndarray], want: np.ndarray, iree: bool = True) -> None:
    """Compares our result, and IREE's, with numpy's."""
    inputs = dict(zip(["input"] if len(given) == 1 else [f"input_{k}" for k in range(len(given))], given.values()))
    got = tw.Device("functional").run(tw.compile(text, cache=False), inputs)["output"]
    np.testing.assert_array_equal(got, want)
    if iree and find_spec("iree") is not None:
        from tilewright.checking.iree_reference import IreeReference

        np.testing.assert_array_equal(IreeReference(text).run(inputs)["output"], want)


def _bytes(*shape: int) -> np.ndarray:
    return _R.integers(-128, 128, shape).astype(np.int8)


def test_conv3d() -> None:
    x, w, bias = _bytes(1, 3, 4, 5, 2), _bytes(3, 2, 3, 1, 2), _R.integers(-999, 999, 3).astype(np.int32)
    zeros = {"zx": np.array([7], np.int8), "zw": np.array([0], np.int8)}
    padded = np.pad(x.astype(np.int64) - 7, [(0, 0), (1, 0), (0, 1), (0, 1), (0, 0)])
    want = np.zeros((1, 3, 3, 3, 3), np.int32)
    for d, i, j in np.ndindex(3, 3, 3):
        window = padded[0, d : d + 2, i : i + 3, 2 * j : 2 * j + 1]
        want[0, d, i, j] = (window[None] * w).sum(axis=(1, 2, 3, 4)) + bias
    attrs = (
        "acc_type = i32, pad = array<i64: 1, 0, 0, 1, 0, 1>, stride = array<i64: 1, 1, 2>, "
        "dilation = array<i64: 1, 1, 1>"
    )
    text = _program("conv3d", {"x": x}, {"w": w, "b": bias, **zeros}, _type(want), attrs)
    _run(text, {"x": x}, want, iree=False)  # IREE 3.13 takes no zero point and no padding here


def test_convolution_of_16_bits_into_48() -> None:
    x = _R.integers(-(1 << 15), 1 << 15, (1, 4, 4, 8)).astype(np.int16)
    w, bias = _bytes(3, 2, 2, 8), np.array([-77_777, 1 << 24, (1 << 40) + 12_345])
    zeros = {"zx": np.array([0], np.int16), "zw": np.array([0], np.int8)}
    attrs = "acc_type = i48, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>, dilation = array<i64: 1, 1>"
    sums = np.zeros((1, 2, 2, 3), np.int64)
    for i, j in np.ndindex(2, 2):
        window = x[0, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].astype(np.int64)
        sums[0, i, j] = (window[None] * w).sum(axis=(1, 2, 3)) + bias
    multiplier, shift = np.array([17000, 32767, 20001], np.int16), np.array([26, 26, 42], np.int8)
    wide = (sums * multiplier.astype(np.int64) + (1 << (shift.astype(np.int64) - 1))) >> shift.astype(np.int64)
    want = np.clip(wide, -(1 << 15), (1 << 15) - 1).astype(np.int16)
    assert len(np.unique(want)) > 6
    text = _program("conv2d", {"x": x}, {"w": w, "b": bias, **zeros}, "tensor<1x2x2x3xi48>", attrs)
    rescale = (
        '%r = "tosa.rescale"(%y, %m, %s, %z, %o) <{scale32 = false, rounding_mode = '
        "#tosa.rounding_mode<SINGLE_ROUND>, per_channel = true, input_unsigned = false, output_unsigned = false}> : "
        f"(tensor<1x2x2x3xi48>, tensor<3xi16>, tensor<3xi8>, tensor<1xi48>, tensor<1xi16>) -> {_type(want)}"
    )
    constants = {"m": multiplier, "s": shift, "z": np.array([0]), "o": np.array([0], np.int16)}
    lines = "\n".join([*(_const(n, a) for n, a in constants.items()), rescale])
    text = text.replace("return %y : tensor<1x2x2x3xi48>", f"{lines}\nreturn %r : {_type(want)}")
    text = text.replace("-> tensor<1x2x2x3xi48> {", f"-> {_type(want)} {{", 1)
    _run(text, {"x": x}, want, iree=False)  # IREE 3.13 has no buffers of i48


@pytest.mark.parametrize("element", [np.int8, np.int32, np.float32])
def test_scatter(element: type) -> None:
    values, rows = (_bytes(2, 6, 3).astype(element), _bytes(2, 4, 3).astype(element))
    at = np.stack([_R.permutation(6)[:4], _R.permutation(6)[:4]]).astype(np.int32)
    want = values.copy()
    for n, w in np.ndindex(2, 4):
        want[n, at[n, w]] = rows[n, w]
    given = {"v": values, "i": at, "x": rows}
    _run(_program("scatter", given, {}, _type(want)), given, want)


@pytest.mark.parametrize("element", [np.int8, np.int16, np.bool_, np.float32])
def test_tile(element: type) -> None:
    x = _bytes(2, 1, 3).astype(element)
    want = np.tile(x, (1, 3, 2))
    _run(_program("tile", {"x": x}, {"t": [1, 3, 2]}, _type(want)), {"x": x}, want)


_REDUCTIONS: dict[str, tuple[type, Callable[..., np.ndarray]]] = {
    "reduce_sum": (np.int32, np.sum), "reduce_max": (np.int8, np.max), "reduce_min": (np.int16, np.min),
    "reduce_product": (np.float32, np.prod), "reduce_any": (np.bool_, np.any), "reduce_all": (np.bool_, np.all),
}  # fmt: skip


@pytest.mark.parametrize(("name", "axis"), list(itertools.product(_REDUCTIONS, [0, 2])))
def test_reductions(name: str, axis: int) -> None:
    element, rule = _REDUCTIONS[name]
    x = (_R.integers(-2, 3, (2, 3, 4)) if element is not np.bool_ else _R.random((2, 3, 4)) < 0.6).astype(element)
    want = rule(x, axis=axis, keepdims=True).astype(element)
    _run(_program(name, {"x": x}, {}, _type(want), f"axis = {axis} : i32"), {"x": x}, want)


def _resized(x: np.ndarray, scale: list[int], offset: list[int], size: tuple[int, int], nearest: bool) -> np.ndarray:
    """RESIZE of integers, element by element as the specification writes it."""
    _, h, w, c = x.shape
    (yn, yd, xn, xd), wide = scale, x.astype(np.int64)
    out = np.zeros((1, *size, c), np.int64)
    for oy, ox in np.ndindex(*size):
        y, column = oy * yd + offset[0], ox * xd + offset[1]
        (iy, fy), (ix, fx) = divmod(y, yn), divmod(column, xn)
        y0, y1, x0, x1 = (min(max(v, 0), m - 1) for v, m in ((iy, h), (iy + 1, h), (ix, w), (ix + 1, w)))
        if nearest:
            out[0, oy, ox] = wide[0, y1 if 2 * fy >= yn else y0, x1 if 2 * fx >= xn else x0]
        else:
            top = wide[0, y0, x0] * (xn - fx) + wide[0, y0, x1] * fx
            below = wide[0, y1, x0] * (xn - fx) + wide[0, y1, x1] * fx
            out[0, oy, ox] = top * (yn - fy) + below * fy
    return out


@pytest.mark.parametrize(
    ("scale", "offset", "border"),
    [([4, 2, 4, 2], [0, 0], [0, 0]), ([4, 2, 6, 2], [-1, -2], [1, 2]), ([3, 4, 5, 2], [0, 1], [0, 0])],
)
@pytest.mark.parametrize("nearest", [True, False])
@pytest.mark.parametrize("element", [np.int8, np.int16])
def test_resize(scale: list[int], offset: list[int], border: list[int], nearest: bool, element: type) -> None:
    x = (_bytes(1, 5, 4, 3).astype(np.int64) * (1 if element is np.int8 else 200)).astype(element)
    size = tuple(
        ((n - 1) * scale[2 * k] - offset[k] + border[k]) // scale[2 * k + 1] + 1 for k, n in enumerate(x.shape[1:3])
    )
    want = _resized(x, scale, offset, (size[0], size[1]), nearest)
    want = want.astype(element if nearest else np.int32 if element is np.int8 else np.int64)
    fixed: dict[str, np.ndarray | list[int]] = {"s": scale, "o": offset, "b": border}
    mode = f"mode = #tosa.resize_mode<{'NEAREST_NEIGHBOR' if nearest else 'BILINEAR'}>"
    text = _program("resize", {"x": x}, fixed, _type(want), mode)
    if want.dtype == np.int64:  # a result of 48 bits cannot leave a function
        back = "tensor<1x{}x{}x3xi32>".format(*size)
        text = text.replace(
            f"return %y : {_type(want)}", f"%z = tosa.cast %y : ({_type(want)}) -> {back}\nreturn %z : {back}"
        )
        text, want = text.replace(f"-> {_type(want)} {{", f"-> {back} {{", 1), want.astype(np.int32)
        _run(text, {"x": x}, want, iree=False)
    else:
        _run(text, {"x": x}, want)


def test_resize_has_the_size_that_scale_and_border_say() -> None:
    text = _program("resize", {"x": _bytes(1, 3, 3, 1)}, {"s": [2, 1, 2, 1], "o": [0, 0], "b": [1, 1]},
                    "tensor<1x6x5x1xi8>", "mode = #tosa.resize_mode<NEAREST_NEIGHBOR>")  # fmt: skip
    with pytest.raises(TilewrightError, match=r"scale, offset and border make a size of 6x6; the text has"):
        tw.compile(text)
