"""RFFT2D and readers of complex numbers against LiteRT, and numpy where its transform has one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.errors import TilewrightError


def spectrum(shape: tuple[int, ...], lengths: tuple[int, int], tail: list[tuple[str, Any]]) -> bytes:
    """RFFT2D of x, and operators one behind the other: (name, options or a constant second input)."""
    made = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    tensors = [T("x", shape, "float32"), T("n", (2,), "int32", data=np.array(lengths)), T("t0", made, "complex64")]
    ops, current = [Op("RFFT2D", ["x", "n"], ["t0"], ("Rfft2dOptions", {}))], "t0"
    for k, (name, given) in enumerate(tail, 1):
        inputs, options = [current], None
        if name == "RESHAPE":
            made = given
            tensors.append(T(f"s{k}", (len(given),), "int32", data=np.array(given)))
            inputs.append(f"s{k}")
        elif name == "EXPAND_DIMS":
            made = (*made[:given], 1, *made[given:])
            tensors.append(T(f"s{k}", (), "int32", data=np.array(given)))
            inputs.append(f"s{k}")
        elif name == "SQUEEZE":
            made, options = made[:given] + made[given + 1 :], ("SqueezeOptions", {"SqueezeDims": [given]})
        real = name in ("REAL", "IMAG", "COMPLEX_ABS", "CAST")
        current = "y" if k == len(tail) else f"t{k}"
        tensors.append(T(current, made, "float32" if real else "complex64"))
        ops.append(Op(name, inputs, [current], options))
    return Model(tensors, ops, ["x"], ["y"]).build()


CASES: dict[str, tuple[tuple[int, ...], tuple[int, int], list[tuple[str, Any]]]] = {
    "real": ((3, 1, 16), (1, 16), [("REAL", None)]),
    "imaginary": ((3, 1, 16), (1, 16), [("IMAG", None)]),
    "magnitude": ((2, 1, 64), (1, 64), [("COMPLEX_ABS", None)]),
    "cast": ((2, 1, 32), (1, 32), [("CAST", None)]),
    "squeezed": ((2, 1, 32), (1, 32), [("SQUEEZE", 1), ("COMPLEX_ABS", None)]),
    "moved": ((2, 1, 32), (1, 32), [("RESHAPE", (2, 17)), ("EXPAND_DIMS", 1), ("RESHAPE", (34, 1)), ("IMAG", None)]),
    "planes": ((2, 8, 16), (8, 16), [("COMPLEX_ABS", None)]),
    "shorter": ((2, 8, 16), (4, 8), [("REAL", None)]),
    "long": ((1, 1, 2048), (1, 2048), [("IMAG", None)]),
}


@pytest.mark.medium
@pytest.mark.parametrize("case", CASES)
def test_against_litert(case: str) -> None:
    shape, lengths, tail = CASES[case]
    data = spectrum(shape, lengths, tail)
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    got = tw.Device("functional").run(tw.compile_program(data), {"x": x})["y"]
    want = LiteRtReference(data).run({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.sqrt(x.size) * np.abs(want).max())
    values = np.fft.rfft2(x, lengths).reshape(got.shape)
    part = {"IMAG": np.imag, "COMPLEX_ABS": np.abs}.get(tail[-1][0], np.real)
    np.testing.assert_allclose(got, part(values), rtol=1e-4, atol=1e-5 * np.abs(values).max())


def test_what_cannot_be_read() -> None:
    with pytest.raises(TilewrightError, match=r"FLOOR.* is not supported with complex numbers"):
        tw.compile_program(spectrum((1, 1, 16), (1, 16), [("FLOOR", None)]))
    with pytest.raises(TilewrightError, match="complex numbers, which no output of a model can be"):
        tw.compile_program(spectrum((1, 1, 16), (1, 16), [("RESHAPE", (9,))]))
