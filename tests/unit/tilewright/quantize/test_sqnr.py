"""SQNR of layers and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.unit.tilewright.quantize import networks
from tilewright.quantize import Quantized, ranges, sqnr
from tilewright.quantize.judging import Judge
from tilewright.quantize.observe import run, session
from tilewright.quantize.plots import layers_picture
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.stepping import Stepper, Values
from tilewright.quantize.writing import write


@pytest.mark.medium
def test_report() -> None:
    """The output's figure is that of two plain runs of onnxruntime; the worst layer comes first."""
    model, samples = networks.deep(), networks.samples(5)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"), {"gemm": Precision.FLOAT})
    written = write(recipe)
    found = sqnr.measure(recipe, written, samples)
    real, quantised = (onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, written))
    pairs = [(real.run(None, x)[0], quantised.run(None, x)[0]) for x in samples]
    signal, error = (sum(float(np.square(v).sum()) for v in values) for values in
                     ([a for a, _ in pairs], [a - b for a, b in pairs]))  # fmt: skip
    assert found.outputs["y"] == pytest.approx(10 * np.log10(signal / error), abs=0.3)
    assert [row.sqnr for row in found.layers] == sorted(row.sqnr for row in found.layers)
    assert {row.layer: row.precision for row in found.layers}["gemm"] == "float"
    assert found.worst == found.outputs["y"] and found.samples == 5
    assert layers_picture(found, "png").startswith(b"\x89PNG") and b"conv0" in layers_picture(found, "svg")


def test_an_output_of_another_size() -> None:
    """Elements that only one of both models has, where an output's size follows from its values, count as errors."""
    model, samples = networks.deep(depth=4), networks.samples(16)
    graph, (before,) = model.graph, model.graph.output
    float_model = session(model)
    values = [run(float_model, sample)[before.name] for sample in samples]
    middle = numpy_helper.from_array(np.float32(np.median(values)), "middle")
    graph.initializer.extend([middle, numpy_helper.from_array(np.array([-1]), "rows")])
    graph.node.extend([
        helper.make_node("Reshape", [before.name, "rows"], ["flat"]),
        helper.make_node("Greater", ["flat", "middle"], ["large"]),
        helper.make_node("Compress", ["flat", "large"], ["few"], axis=0),
    ])  # fmt: skip
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("few", onnx.TensorProto.FLOAT, ["count"]))
    recipe = Recipe(model, ranges.find(model, samples, "minmax"), {})
    written = write(recipe)
    real, quantised = (onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, written))
    pairs = [(real.run(None, x)[0], quantised.run(None, x)[0]) for x in samples]
    sizes = sum(len(a) != len(b) for a, b in pairs)
    assert sizes and any(len(a) > len(b) for a, b in pairs) and any(len(a) < len(b) for a, b in pairs)
    error = sum(np.square(a - np.resize(np.append(b, np.zeros(len(a))), len(a))).sum() for a, b in pairs)
    wanted = 10 * np.log10(sum(np.square(a).sum() for a, _ in pairs) / error)
    found = sqnr.measure(recipe, written, samples)
    assert found.outputs["few"] == pytest.approx(wanted, abs=0.3) and found.other_sizes == {"few": sizes}
    assert f"few has another size than in the float model on {sizes} of them" in str(found)
    assert Judge(model, samples).measure(recipe).noise[0] > 0


def test_a_target_that_was_not_reached() -> None:
    report = sqnr.Report({"y": 12.0, "z": 25.0}, [], 4)
    model = networks.deep(depth=2)
    found = Quantized(model, Recipe(model, precision={}), noise=report, target=20.0)
    assert found.missed == ["y"] and found.to_dict()["sqnr"]["missed"] == ["y"]
    assert found.lines()[-1].startswith("warning: y did not reach the target of 20 dB")
    assert not replace(found, target=None).missed and not replace(found, target=12.0).missed


def test_equal_models() -> None:
    model = networks.deep(depth=2)
    recipe = Recipe(model, precision={})
    assert sqnr.measure(recipe, model, networks.samples(2)).outputs == {"y": sqnr.BEST}


def test_stepping() -> None:
    """A model run piece by piece gives what it gives at once, also from files, and with a constant changed between."""
    model, samples = networks.deep(depth=4), networks.samples(3)
    wanted = [onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)[0] for x in samples]
    stepper = Stepper(model, samples, keep=frozenset(["y"]))
    stepper.values.budget = 0
    for name in ("conv1", "conv3", "gemm"):
        stepper.run_to(stepper.index(name))
    stepper.run_to(len(stepper.nodes))
    for index, value in enumerate(wanted):
        assert np.allclose(stepper.value(index, "y"), value, atol=1e-5)
    stepper.close()
    again = Stepper(model, samples, keep=frozenset(["y"]))
    again.run_to(again.index("gemm"))
    node = again.nodes[again.index("gemm")]
    again.set(node.input[1], np.zeros((16, 10), np.float32))
    again.set(node.input[2], np.ones(10, np.float32))
    again.run_to(len(again.nodes))
    assert np.array_equal(again.value(0, "y"), np.ones((1, 10), np.float32))
    again.close()


def test_values_in_files() -> None:
    values = Values(budget=0)
    large = np.arange(4096, dtype=np.float32)
    values.put(0, "a", large)
    values.put(0, "b", [large])
    assert np.array_equal(values.get(0, "a"), large) and values.get(0, "b")[0] is large
    values.drop(0, "a")
    values.close()


def test_layers_are_compared_on_a_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs on all."""
    model, seen = networks.deep(depth=2), []
    add = sqnr.Noise.add
    monkeypatch.setattr(sqnr.Noise, "add", lambda own, a, *rest: (seen.append(a.shape), add(own, a, *rest))[1])
    recipe = Recipe(model, precision={})
    report = sqnr.measure(recipe, model, networks.samples(10))
    assert report.samples == 10 and "on the worst sample" in str(report)
    assert seen.count((1, 10)) == 10 and seen.count((1, 16, 1, 1)) == sqnr.LAYER_SAMPLES


def test_why_a_target_was_missed() -> None:
    """The layers that lose most are named, but not those that read what is exact; the worst sample is told."""
    rows = [sqnr.Row("a", "Conv", "a", "int8", 30.0, 170.0), sqnr.Row("b", "Conv", "b", "int8", 21.0, 9.0)]
    rows += [sqnr.Row("c", "Relu", "c", "int8", 20.5, 0.5), sqnr.Row("d", "Softmax", "d", "float", 15.0, 5.5)]
    report = sqnr.Report({"d": 15.0}, rows, 6, {"d": 9.25})
    assert report.losses == "b (Conv, int8) loses 9.0 dB and d (Softmax, float) loses 5.5 dB"
    assert str(report) == "SQNR on 6 samples held back: d 15.0 dB; 9.2 dB on the worst sample"


def test_floats_instead_of_integers() -> None:
    """A quantised model gives the same, but for rounding, whether onnxruntime uses integers or not."""
    model, (sample,) = networks.deep(), networks.samples(1)
    written = write(Recipe(model, ranges.find(model, [sample], "minmax")))  # type: ignore[arg-type]
    one, two = (run(session(written, integers=integers), sample)["y"] for integers in (True, False))
    assert np.square(one - two).sum() < 0.01 * np.square(one).sum()
