"""The committed digits files are what their README says; onnxruntime alone, no NPU."""

import sys
from types import ModuleType

import numpy as np
import onnx
import pytest

from tests.common.paths import ROOT
from tilewright import zoo

FOLDER = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def evaluate() -> ModuleType:
    """The example's script as a module; scripts find their neighbours by their own folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        import evaluate
    finally:
        sys.path.remove(str(FOLDER))
    return evaluate


def test_test_set(evaluate: ModuleType) -> None:
    images, labels = evaluate.network.load_test_set()
    assert images.shape == (360, 1, 8, 8) and images.dtype == np.float32
    assert images.min() == 0 and images.max() == 1
    assert sorted(set(labels)) == list(range(10))


@pytest.mark.slow
def test_test_set_is_held_back(evaluate: ModuleType) -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    raw = digits.images.astype(np.float32)[:, None] / np.float32(16)
    _, expected, _, labels = train_test_split(raw, digits.target, test_size=360, random_state=0, stratify=digits.target)
    images, kept = evaluate.network.load_test_set()
    np.testing.assert_array_equal(images, expected)
    np.testing.assert_array_equal(kept, labels)


def test_models_are_small_int8_and_valid() -> None:
    model, int8 = (onnx.load(FOLDER / f"digits_{kind}.onnx") for kind in ("float", "int8"))
    for x in (model, int8):
        onnx.checker.check_model(x, full_check=True)
        assert [d.dim_value for d in x.graph.input[0].type.tensor_type.shape.dim] == [1, 1, 8, 8]
    assert 20_000 < zoo.count_parameters(model) < 60_000
    constants = {x.name: x for x in int8.graph.initializer}
    zero_points = [constants[n.input[2]] for n in int8.graph.node if n.op_type == "QuantizeLinear"]
    assert {x.data_type for x in zero_points} == {onnx.TensorProto.INT8}
    weights = [x for x in constants.values() if len(x.dims) == 4]
    assert len(weights) == 8 and {x.data_type for x in weights} == {onnx.TensorProto.INT8}


@pytest.mark.medium
@pytest.mark.parametrize("batch", [1, 50])
def test_accuracy_and_batches(evaluate: ModuleType, batch: int) -> None:
    images, labels = evaluate.network.load_test_set()
    model, int8 = (onnx.load(FOLDER / f"digits_{kind}.onnx") for kind in ("float", "int8"))
    single = evaluate.scores(evaluate.reference(int8), images, 1)
    for x in (model, int8):
        got = evaluate.scores(evaluate.reference(zoo.with_batch(x, batch)), images, batch)
        assert np.mean(got.argmax(axis=1) == labels) > 0.99
    # The last batch of 50 is filled up with blanks; integer arithmetic does not see its neighbours.
    assert evaluate.equal_rows(got, single) == 360
