"""onnxruntime's plain quantiser as a candidate: its network is the one that `quantize_static` writes to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from tests.common.onnx_models import model_of, session
from tests.unit.tilewright.quantize import networks
from tilewright.quantize import plain
from tilewright.quantize.model import quantize_onnx
from tilewright.quantize.observe import copied
from tilewright.quantize.prepare import rewrite
from tilewright.quantize.recipe import Sample


class _Reader(CalibrationDataReader):
    def __init__(self, samples: list[Sample]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)


@pytest.fixture(scope="module")
def classifier() -> onnx.ModelProto:
    """A batch norm, a hard swish in parts, a sum, and a product that is a MatMul and an Add before a Softmax."""
    random = np.random.default_rng(3)
    of = lambda *shape: random.normal(size=shape).astype(np.float32)
    held = {"w0": of(8, 3, 3, 3) / 4, "w1": of(8, 8, 1, 1) / 3, "w": of(8, 4), "b": of(4), "s": np.abs(of(8)) + 0.5,
            "o": of(8), "m": of(8), "v": np.abs(of(8)) + 0.2, "three": np.float32(3), "six": np.float32(6),
            "low": np.float32(0)}  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "c0", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c0", "s", "o", "m", "v"], ["n"]),
        helper.make_node("Add", ["n", "three"], ["n3"]),
        helper.make_node("Clip", ["n3", "low", "six"], ["n6"]),
        helper.make_node("Mul", ["n", "n6"], ["nn"]),
        helper.make_node("Div", ["nn", "six"], ["h"]),
        helper.make_node("Conv", ["h", "w1"], ["c1"], "c1"),
        helper.make_node("Relu", ["c1"], ["r"]),
        helper.make_node("Add", ["r", "h"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["z"]),
        helper.make_node("Add", ["z", "b"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    return model_of(nodes, {"x": [1, 3, 12, 12]}, {"y": [1, 4]}, held)


def _reference(model: onnx.ModelProto, samples: list[Sample], folder: Path, **options: Any) -> onnx.ModelProto:
    """Returns the file of onnxruntime's own function."""
    given, made = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model, given)
    quant_pre_process(given, given, skip_symbolic_shape=True)
    quantize_static(given, made, _Reader(samples), QuantFormat.QDQ, weight_type=QuantType.QInt8, **options)
    return onnx.load(made)


def _values(model: onnx.ModelProto) -> dict[str, bytes]:
    return {x.name: numpy_helper.to_array(x).tobytes() for x in model.graph.initializer}


@pytest.mark.medium
@pytest.mark.parametrize(("activation", "per_channel"), [("int8", True), ("uint8", False)])
def test_it_is_the_file_of_quantize_static(
    classifier: onnx.ModelProto, tmp_path: Path, activation: str, per_channel: bool
) -> None:
    """The same nodes, scales, zero points, weights and biases, and the same outputs on samples held back."""
    samples = networks.samples(6)
    kind = QuantType.QInt8 if activation == "int8" else QuantType.QUInt8
    wanted = _reference(classifier, samples, tmp_path, per_channel=per_channel, activation_type=kind)
    found = plain.Plain(rewrite(classifier)).network(samples, activation, per_channel)
    assert found is not None and _values(found) == _values(wanted)
    assert [node.op_type for node in found.graph.node] == [node.op_type for node in wanted.graph.node]
    sessions = session(found), session(wanted)
    for sample in networks.samples(4, seed=1):
        a, b = (one.run(None, sample)[0] for one in sessions)
        assert a.tobytes() == b.tobytes()


@pytest.mark.medium
def test_it_is_the_first_candidate(
    classifier: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All samples are in its ranges. A quantiser that fails leaves the project's own network with such ranges."""
    samples = networks.samples(16)
    options = {"per_channel": True, "activation_type": QuantType.QInt8}
    wanted = _reference(classifier, samples, tmp_path, **options)
    decision = quantize_onnx(classifier, samples, check=False).decision
    assert decision is not None
    first, others = decision.candidates[0], decision.candidates[1:]
    written = first.measured.recipe.written
    assert first.name == "plain" and written is not None and _values(written) == _values(wanted)
    assert all(other.measured.recipe.written is None for other in others)
    assert [x.name for x in written.graph.output] == ["y"]
    assert decision.beat is first
    monkeypatch.setattr(plain, "_extremes", lambda model, samples: {})
    decision = quantize_onnx(classifier, samples, check=False).decision
    assert decision is not None and decision.candidates[0].name == "minmax"


def test_tensors_have_the_names_of_their_dequantised_values(classifier: onnx.ModelProto) -> None:
    """The scores that a Softmax reads are then judged as it reads them."""
    samples = networks.samples(3)
    found = plain.Plain(rewrite(classifier)).network(samples)
    whole = copied(classifier)
    whole.graph.output.extend([onnx.ValueInfoProto(name="l", type=whole.graph.output[0].type)])
    assert plain.with_outputs(found, whole) is found and found is not None
    scale = next(numpy_helper.to_array(x) for x in found.graph.initializer if x.name == "l_scale")
    steps = onnxruntime.InferenceSession(found.SerializeToString()).run(["l"], samples[0])[0] / scale
    assert np.abs(steps - np.rint(steps)).max() < 1e-3 and np.ptp(steps) > 1
    whole.graph.output[1].name = "not there"
    assert plain.with_outputs(plain.Plain(rewrite(classifier)).network(samples), whole) is None
