"""Samples that cannot be calibrated with, and models that cannot be quantised, end in one line that says which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.common.onnx_models import model_of
from tilewright.errors import UsageError
from tilewright.quantization import quantize_model
from tilewright.quantize import quantize
from tilewright.quantize.finite import may_be_infinite
from tilewright.quantize.layers import Network
from tilewright.quantize.model_inputs import Input
from tilewright.quantize.samples import samples_of

BAD = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e300]


def products(dtype: Any = np.float32, between: str = "Relu") -> onnx.ModelProto:
    """Two products and what is between them."""
    random, node = np.random.default_rng(0), helper.make_node
    operands = ["h", "h"] if between == "Mul" else ["h"]
    nodes = [
        node("MatMul", ["x", "w"], ["h"], "first"), node(between, operands, ["r"], "between"),
        node("MatMul", ["r", "v"], ["y"], "last"),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {name: random.standard_normal((8, 8)).astype(dtype) for name in ("w", "v")}
    return model_of(nodes, {"x": (kind, [1, 8])}, {"y": (kind, None)}, constants)


def data(bad: float, at: int = 3) -> np.ndarray:
    """Eight samples, of which one has a bad value; float64 holds all of them."""
    found = np.random.default_rng(1).standard_normal((8, 1, 8))
    found[at, 0, 2] = bad
    return found


def as_file(x: np.ndarray, folder: Path) -> Path:
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def as_archive(x: np.ndarray, folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", x=x)
    return folder / "x.npz"


def as_folder(x: np.ndarray, folder: Path) -> Path:
    for number, part in enumerate(np.split(x, 2)):
        np.savez(folder / f"part{number}.npz", x=part)
    return folder


FORMS: list[tuple[Callable[[np.ndarray, Path], Any], str]] = [
    (lambda x, _: x, "calibration of 'x', sample 4 of 8"),
    (lambda x, _: {"x": x}, "calibration of 'x', sample 4 of 8"),
    (lambda x, _: [{"x": one} for one in x], "calibration of 'x', sample 4 of 8"),
    (as_file, "calibration of 'x', sample 4 of 8"),
    (as_archive, "calibration of 'x', sample 4 of 8"),
    (as_folder, "calibration part0.npz of 'x', sample 4 of 4"),
]


@pytest.mark.parametrize(("form", "what"), FORMS)
@pytest.mark.parametrize("bad", BAD)
def test_samples_that_are_no_numbers(form: Callable[..., Any], what: str, bad: float, tmp_path: Path) -> None:
    wanted = {"x": Input(np.dtype(np.float32), (1, 8))}
    with pytest.raises(UsageError) as caught:
        samples_of(form(data(bad), tmp_path), wanted)
    text = str(caught.value)
    assert text.startswith(f"{what} (index 3) has {bad:g} at [0, 2]; numbers within ±1.8e+19 are accepted")
    assert ("-10000" in text) == (bad < -1e30)


def test_whatever_sample_it_is() -> None:
    """NaN and infinity are found in every sample, also in those held back, and by the short form as well."""
    for at in range(8):
        with pytest.raises(UsageError, match=rf"sample {at + 1} of 8 \(index {at}\) has nan"):
            quantize(products(), data(np.nan, at).astype(np.float32), check=False)
    with pytest.raises(UsageError, match=r"sample 3 of 8 \(index 2\) has inf"):
        quantize_model(products(), data(np.inf, 2))


def test_integers_that_do_not_fit() -> None:
    wanted = {"x": Input(np.dtype(np.uint8), (1, 2))}
    assert next(iter(samples_of(np.array([[0, 255]]), wanted)))["x"].dtype == np.uint8
    for bad in (-1, 256):
        with pytest.raises(UsageError, match=rf"has {bad} at \[0, 1\]; 0..255 are accepted: the input is uint8"):
            samples_of(np.array([[0, bad]]), wanted)


@pytest.mark.parametrize("at", range(4))
def test_a_model_that_overflows(at: int) -> None:
    """A model that overflows on a sample within the limits is refused, whether that is calibrated with or held back."""
    x = data(0.0)[:4].astype(np.float32)
    x[at] *= 1e18
    with pytest.raises(
        UsageError, match=rf"calibration sample {at + 1} of 4 \(index {at}\): in the float model '[rhy]'"
    ):
        quantize(products(between="Mul"), x, check=False)


def test_infinite_values_that_are_meant() -> None:
    """Values behind a mask may be infinite, up to the Softmax or product behind it."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["s"], "s"), node("Add", ["s", "mask"], ["a"], "a"),
        node("Softmax", ["a"], ["p"], "p"), node("MatMul", ["p", "w"], ["y"], "y"), node("Log", ["y"], ["z"], "z"),
        node("Mul", ["a", "two"], ["b"], "b"), node("Softmax", ["b"], ["c"], "c"), node("IsNaN", ["c"], ["n"], "n"),
        node("Where", ["n", "two", "c"], ["d"], "d"), node("MatMul", ["d", "w"], ["e"], "e"),
    ]  # fmt: skip
    constants = {"w": np.eye(4, dtype=np.float32), "mask": np.array([[0, 0, 0, -3e38]], np.float32),
                 "two": np.float32(2)}  # fmt: skip
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [1, 4])}, {"e": (TensorProto.FLOAT, None)}, constants)
    assert may_be_infinite(Network(model)) == {"mask", "a", "b", "c", "n", "d", "z"}


def test_doubles_are_refused() -> None:
    with pytest.raises(UsageError, match=r"the model computes in float64: .* models of float32 are accepted"):
        quantize(products(np.float64), data(0.0).astype(np.float64), check=False)


def test_an_input_without_shape() -> None:
    model = products()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match=r"input 'x' has no shape in the model, .* with --shape x=SIZE,SIZE"):
        quantize(model, data(0.0), check=False)
    assert quantize(model, data(0.0), shapes={"x": (1, 8)}, check=False).model.graph.node


def test_weights_that_are_no_numbers() -> None:
    model = products()
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[0, 0] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, model.graph.initializer[0].name))
    with pytest.raises(UsageError, match=r"calibration sample \d of 8 .*: in the float model"):
        quantize(model, data(0.0), check=False)
