"""int8 TFLite networks with 16-bit activations: values worked out by hand, LiteRT runs the result, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common.tflite_models import Model, Op, T, unary
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.cli.commands.zoo import command
from tilewright.compiler.importer.tflite.schema import read
from tilewright.errors import UsageError
from tilewright.isa.config import preset
from tilewright.quantize.tflite_sixteen import widened


def network() -> bytes:
    """A convolution, a pool, a sum, a function, a reshape and a product, of bytes."""
    r = np.random.default_rng(0)
    tensors = [
        T("x", (1, 6, 6, 3), "int8", 0.02, -100), T("w", (8, 3, 3, 3), "int8", [0.01] * 7 + [0.02],
          data=r.integers(-127, 128, (8, 3, 3, 3))), T("b", (8,), "int32", [0.0002] * 7 + [0.0004],
          data=r.integers(-3000, 3000, 8)), T("c", (1, 6, 6, 8), "int8", 0.05, 3),
        T("p", (1, 3, 3, 8), "int8", 0.05, 3), T("s", (1, 3, 3, 8), "int8", 0.1, 3),
        T("l", (1, 3, 3, 8), "int8", 1 / 256, -128), T("shape", (2,), "int32", data=np.array([1, 72])),
        T("f", (1, 72), "int8", 1 / 256, -128), T("v", (4, 72), "int8", 0.01, data=r.integers(-127, 128, (4, 72))),
        T("d", (4,), "int32", 0.01 / 256, data=np.zeros(4)), T("y", (1, 4), "int8", 0.05, 0),
    ]  # fmt: skip
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["c"], ("Conv2DOptions", {"Padding": 0, "StrideH": 1, "StrideW": 1}), 3),
        Op("MAX_POOL_2D", ["c"], ["p"], ("Pool2DOptions", {"StrideH": 2, "StrideW": 2, "FilterHeight": 2,
                                                           "FilterWidth": 2}), 2),
        Op("ADD", ["p", "p"], ["s"], ("AddOptions", {}), 2), Op("LOGISTIC", ["s"], ["l"], None, 2),
        Op("RESHAPE", ["l", "shape"], ["f"]),
        Op("FULLY_CONNECTED", ["f", "v", "d"], ["y"], ("FullyConnectedOptions", {}), 4),
    ]  # fmt: skip
    return Model(tensors, ops, ["x"], ["y"]).build()


def test_values_by_hand() -> None:
    found = {t.name: t for t in read(widened(network())).tensors}
    x, bias = found["x"], found["b"]
    assert x.quant is not None and bias.quant is not None and bias.data is not None
    step = float(np.float32(float(np.float32(0.02)) * 227 / 32767))  # -100 has 227 steps above it, and 28 below
    assert (x.dtype, float(x.quant.scale), int(x.quant.zero_point)) == (np.int16, step, 0)
    (old,) = (t for t in read(network()).tensors if t.name == "b")
    assert old.data is not None and bias.dtype == np.int64
    np.testing.assert_array_equal(bias.data, np.rint(old.data * (np.float32(0.02) / np.float64(step))))
    np.testing.assert_allclose(bias.quant.scale, step * np.array([0.01] * 7 + [0.02]), rtol=1e-6)
    assert all(found[n].quant.scale == 2.0**-15 for n in ("l", "f"))  # type: ignore[union-attr]


@pytest.mark.medium
@pytest.mark.parametrize("wide_results", [0, 1])
def test_litert_runs_it(wide_results: int) -> None:
    data = widened(network())
    x = np.random.default_rng(1).integers(-32768, 32768, (1, 6, 6, 3)).astype(np.int16)
    with tw.Device("functional") as device:
        got = device.run(tw.compile(data, preset("tiny").with_(wide_results=wide_results)), {"x": x})
    np.testing.assert_array_equal(got["y"], LiteRtReference(data).run({"x": x})["y"])


def test_real_values_stay_near() -> None:
    """The same picture through both forms: the 16-bit one keeps the results of the other to its steps."""
    x = np.random.default_rng(2).integers(-128, 128, (1, 6, 6, 3)).astype(np.int8)
    data = widened(network())
    scales = [next(t for t in read(d).tensors if t.name == "x").quant for d in (network(), data)]
    wide = np.rint((x.astype(float) + 100) * float(scales[0].scale) / float(scales[1].scale))  # type: ignore[union-attr]
    eight = LiteRtReference(network()).run({"x": x})["y"] * 0.05
    y = next(t for t in read(data).tensors if t.name == "y").quant
    assert y is not None
    sixteen = LiteRtReference(data).run({"x": wide.clip(-32768, 32767).astype(np.int16)})["y"] * float(y.scale)
    np.testing.assert_allclose(sixteen, eight, atol=0.15)


def test_what_is_refused(tmp_path: Path) -> None:
    scale = {"scale": 0.1, "zero": 3}
    for data, message in (
        (unary("HARD_SWISH", T("x", (4,), **scale), T("y", (4,), **scale)), "HARD_SWISH cannot be widened to 16 bits"),
        (unary("RESHAPE", T("x", (4,), "uint8", 0.1), T("y", (4,), "uint8", 0.1)), "'x' is no int8 activation"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            widened(data)
    damaged = tmp_path / "damaged.tflite"
    damaged.write_bytes(b"nothing")
    result = CliRunner().invoke(command, ["widen", str(damaged), "-o", str(tmp_path / "out.tflite")])
    assert "not a TFLite model" in str(result.exception) and not (tmp_path / "out.tflite").exists()


def test_command(tmp_path: Path) -> None:
    source, target = tmp_path / "in.tflite", tmp_path / "out.tflite"
    source.write_bytes(network())
    result = CliRunner().invoke(command, ["widen", str(source), "-o", str(target)])
    assert result.exit_code == 0 and "in.tflite with 16-bit activations" in result.output
    assert target.read_bytes() == widened(network())
