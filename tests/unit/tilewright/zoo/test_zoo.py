"""Every network of the zoo builds, is valid ONNX, quantises and runs; sizes are those of the published networks."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common import onnx_models
from tilewright import zoo
from tilewright.zoo.builder import Builder, scaled_channels

#: Networks of tokens: language models are in test_llama.py.
NAMES = sorted(name for name, entry in zoo.ZOO.items() if entry.quantise is None)
#: ResNet-50 is ResNet-18 with other blocks, and takes as long as all others; two more take half of the rest.
MARKS = {"resnet50": [pytest.mark.long], "resnet18": [pytest.mark.network], "efficientnet": [pytest.mark.network]}
EACH = [pytest.param(n, marks=MARKS.get(n, [])) for n in NAMES]
#: onnxruntime takes a second or so for each of these.
SLOW = ("detector", "squeeze_excite", "mobilenet_v2")
FORMS = [("qdq", "int8"), ("qoperator", "uint8")]
#: The second form of the dearest says nothing that the small ones do not say of it.
QUANTISED = [
    pytest.param(n, *form, marks=pytest.mark.long if form != FORMS[0] and (n in SLOW or n in MARKS) else
                 [pytest.mark.slow] if n in SLOW else MARKS.get(n, []))
    for form in FORMS
    for n in NAMES
]  # fmt: skip


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    (output,) = onnx_models.run(model, inputs).values()
    return output


def small(name: str, **params: object) -> onnx.ModelProto:
    return zoo.build(name, cache=False, **(dict(zoo.ZOO[name].small) | params))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", EACH)
def test_float_network_is_valid_and_sane(name: str) -> None:
    model = small(name)
    onnx.checker.check_model(model, full_check=True)
    first, second = (run(model, x) for x in zoo.random_inputs(model, 2, seed=5))
    assert np.isfinite(first).all()
    assert 0.05 < first.std() < 30
    assert np.abs(first - second).max() > 1e-3 * np.abs(first).max(), "the output does not depend on the input"


@pytest.mark.medium
@pytest.mark.parametrize(("name", "form", "activation"), QUANTISED)
def test_quantised_network_follows_the_float_one(name: str, form: str, activation: str) -> None:
    model = small(name)
    before = model.SerializeToString()
    quantised = zoo.quantize(model, form, activation, calibration=2)
    assert model.SerializeToString() == before, "quantising must leave its argument alone"
    onnx.checker.check_model(onnx_domain_only(quantised))
    kinds = {node.op_type for node in quantised.graph.node}
    assert "QuantizeLinear" in kinds
    assert any(kind.startswith(("QLinear", "QGemm")) for kind in kinds) == (form == "qoperator")
    inputs = zoo.random_inputs(model, 1, seed=5)[0]
    expected, got = run(model, inputs), run(quantised, inputs)
    assert np.isfinite(got).all()
    assert len(np.unique(got)) > 1
    # Without 16-bit pair saturation (uint8 on CPUs without VNNI) errors are a small part of the spread.
    if activation == "int8":
        assert np.abs(got - expected).std() < 0.3 * expected.std()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet8", {"size": 8}),
        ("autoencoder", {"features": 64, "hidden": 32}),
        pytest.param("mobilenet_v2", {}, marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_network_with_weights_of_four_bits_on_the_npu(name: str, parameters: dict[str, object]) -> None:
    quantised = zoo.quantize(small(name, **parameters), weights="int4")
    kinds = {x.data_type for x in quantised.graph.initializer}
    assert onnx.TensorProto.INT4 in kinds and onnx.TensorProto.INT8 not in {
        x.data_type for x in quantised.graph.initializer if np.prod(x.dims) > 1
    }
    report = tw.check(quantised, config="base")
    assert report.ok, report.summary()


def onnx_domain_only(model: onnx.ModelProto) -> onnx.ModelProto:
    """The checker does not know onnxruntime's own operators; it skips domains that are declared."""
    declared = {x.domain for x in model.opset_import}
    assert {node.domain for node in model.graph.node} <= declared
    return model


@pytest.mark.parametrize("name", [e for e in EACH if "batch_norm" in zoo.ZOO[str(e.values[0])].parameters])
def test_batch_norm_as_nodes_equals_batch_norm_folded(name: str) -> None:
    folded, present = small(name), small(name, batch_norm=True)
    kinds = [node.op_type for node in present.graph.node]
    assert "BatchNormalization" in kinds
    assert "BatchNormalization" not in [node.op_type for node in folded.graph.node]
    inputs = zoo.random_inputs(folded, 1)[0]
    np.testing.assert_allclose(run(present, inputs), run(folded, inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.medium
def test_quantised_bert_follows_the_float_one() -> None:
    model = small("bert")
    quantised = zoo.build_quantized("bert", cache=False, **zoo.ZOO["bert"].small)
    results = []
    for seed in range(3):
        ids = {"input_ids": np.random.default_rng(seed).integers(0, 100, (1, 24))}
        results.append((run(model, ids), run(quantised, ids)))
    spread = np.std([expected for expected, _ in results], axis=0).max()
    assert spread > 0.05 and max(np.abs(got - expected).max() for expected, got in results) < spread


def test_batch_norm_is_folded_before_quantising() -> None:
    quantised = zoo.quantize(small("resnet8", batch_norm=True), calibration=1)
    assert "BatchNormalization" not in {node.op_type for node in quantised.graph.node}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "macs", "parameters"),
    [
        # Convolutions and the classifier, batch norms folded: 11.68 M, 25.5 M, 4.2 M, 3.5 M parameters as published.
        ("resnet18", 1_814_073_344, 11_684_712),
        pytest.param("resnet50", 4_089_184_256, 25_530_472, marks=MARKS["resnet50"]),
        ("mobilenet_v1", 568_740_352, 4_221_032),
        ("mobilenet_v2", 300_774_272, 3_487_816),
        ("resnet8", 12_501_632, 77_706),
        ("vww", 7_489_664, 210_850),
        ("ds_cnn", 2_656_768, 22_604),
        ("autoencoder", 264_192, 265_864),
        ("deit", 1_253_683_200, 5_717_426),
    ],
)
def test_full_size(name: str, macs: int, parameters: int) -> None:
    model = zoo.build(name, cache=False)
    assert zoo.count_macs(model) == macs
    assert zoo.count_parameters(model) == parameters


def test_mac_count_is_kept_by_qdq_and_refused_for_qoperator() -> None:
    model = small("resnet8")
    assert zoo.count_macs(zoo.quantize(model, calibration=1)) == zoo.count_macs(model)
    with pytest.raises(ValueError, match="not in one with QLinearConv"):
        zoo.count_macs(zoo.quantize(model, "qoperator", calibration=1))


def test_equal_parameters_give_equal_bytes_and_seeds_differ() -> None:
    assert small("ds_cnn").SerializeToString() == small("ds_cnn").SerializeToString()
    assert small("ds_cnn").SerializeToString() != small("ds_cnn", seed=1).SerializeToString()


@pytest.mark.medium
@pytest.mark.parametrize("name", [e for e in EACH if "batch" in zoo.ZOO[str(e.values[0])].parameters])
def test_batch_can_be_changed(name: str) -> None:
    model = small(name)
    pair = zoo.with_batch(model, 2)
    inputs = zoo.random_inputs(pair, 1)[0]
    one = {key: value[1:] for key, value in inputs.items()}
    np.testing.assert_allclose(run(pair, inputs)[1:], run(model, one), rtol=1e-3, atol=1e-4)
    built = small(name, batch=2)
    np.testing.assert_array_equal(run(built, inputs), run(pair, inputs))


@pytest.mark.medium
def test_cache_keeps_and_repairs(own_cache: Path) -> None:
    def quantised() -> bytes:
        return zoo.build_quantized("ds_cnn", calibration=1).SerializeToString()

    first = quantised()
    files = sorted((own_cache / "zoo").iterdir())
    assert len(files) == 2 and all(x.suffix == ".onnx" for x in files), (
        "the float and the quantised model, no leftovers"
    )
    stamps = [x.stat().st_mtime_ns for x in files]
    assert quantised() == first
    assert [x.stat().st_mtime_ns for x in files] == stamps
    for x in files:
        x.write_bytes(x.read_bytes()[:-100])
    assert quantised() == first
    assert zoo.build_quantized("ds_cnn", calibration=2).SerializeToString() != first


def test_cache_that_cannot_be_written_is_not_an_error(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = own_cache / "file"
    blocker.touch()
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocker))
    assert zoo.build("ds_cnn") == zoo.build("ds_cnn", cache=False)


def test_quantising_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    zoo.quantize(small("ds_cnn"), calibration=1)
    assert list(tmp_path.iterdir()) == []


def test_calibration_by_array_sets_the_input_scale() -> None:
    model = small("ds_cnn")
    images = np.linspace(0, 2.55, 3 * 490, dtype=np.float32).reshape(3, 1, 49, 10)
    quantised = zoo.quantize(model, calibration=images)
    first = next(node for node in quantised.graph.node if "input" in node.input)
    scale = next(x for x in quantised.graph.initializer if x.name == first.input[1])
    assert onnx.numpy_helper.to_array(scale) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zoo.build("alexnet"), "no network 'alexnet' in the zoo; there are autoencoder, "),
        (lambda: zoo.build("resnet8", alpha=2), "resnet8 has no parameter alpha; it has size, batch"),
        (lambda: zoo.build("transformer", size=100), "size must be a multiple of the patch 16, not 100"),
        (lambda: zoo.quantize(small("ds_cnn"), "qat"), "form must be one of qdq, qoperator, not 'qat'"),
        (lambda: zoo.quantize(small("ds_cnn"), activation="int4"), "activation must be one of int8, uint8, not 'int4'"),
        (lambda: zoo.quantize(small("ds_cnn"), "qoperator", weights="int4"), "int4 weights need the form 'qdq', not"),
        (lambda: zoo.with_batch(small("ds_cnn"), 0), "batch must be at least 1, not 0"),
        (lambda: Builder("x").activate(Builder("x").input((1, 2)), "elu"), "activation must be a known name"),
    ],
)
def test_mistakes_are_named(call, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_channels_are_rounded_as_mobilenet_does() -> None:
    assert [scaled_channels(c) for c in (3, 12, 16 * 0.35, 24 * 0.35, 1280)] == [8, 16, 8, 8, 1280]
