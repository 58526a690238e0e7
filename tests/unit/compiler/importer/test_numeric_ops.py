"""Ops that the importer writes out, or that have kernels of their own, at random shapes against onnxruntime, onnx's
reference implementation or numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright.onnx_backend as backend
from tests.common import onnx_models


def model_of(
    op: str, feeds: dict[str, np.ndarray | None], outputs: int = 1, opset: int = 22, domain: str = "",
    consts: dict[str, Any] | None = None, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One node; `consts` are initialisers among `feeds`, None inputs are left out."""
    consts = consts or {}
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, [n if v is not None else "" for n, v in feeds.items()], names, domain=domain, **attrs)
    inputs = {n: v for n, v in feeds.items() if v is not None and n not in consts}
    versions = {"opset": 21, domain: opset} if domain else {"opset": opset}
    return onnx_models.model_of([node], inputs, names, consts, **versions)


def given(feeds: dict[str, np.ndarray | None], consts: dict[str, Any]) -> dict[str, np.ndarray]:
    return {n: np.asarray(v) for n, v in feeds.items() if v is not None and n not in consts}


def by_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(onnx_models.run(model, feeds).values())


def by_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ReferenceEvaluator(model).run(None, feeds)


def check(
    op: str, feeds: dict[str, Any], reference: Any = by_onnxruntime, rtol: float = 1e-5, atol: float = 1e-6,
    consts: dict[str, Any] | None = None, **options: Any,
) -> None:  # fmt: skip
    consts = {n: feeds[n] for n in consts or ()}
    model = model_of(op, feeds, consts=consts, **options)
    feeds = given(feeds, consts)
    want = reference(model, feeds)
    found = backend.run_model(model, feeds)
    assert len(found) == len(want)
    for a, b in zip(found, want):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.medium
@pytest.mark.parametrize("length", [1, 2, 7, 60, 1000, 1537])
def test_dft(length: int) -> None:
    """DFT of lengths that are split or prime, and of inputs shorter and longer than the transform."""
    rng = np.random.default_rng(length)
    for n, inverse, onesided, parts in ((length, 0, 0, 2), (length, 1, 0, 2), (length + 3, 0, 1, 1), (length, 0, 0, 1)):
        x = normal(rng, 2, max(n - 2, 1) if parts == 2 else n, parts)
        z = x[..., 0] + (1j * x[..., 1].astype(np.float64) if parts == 2 else 0)
        want = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis=1)
        want = want[:, : length // 2 + 1] if onesided else want
        consts = {"n": np.int64(length)}
        model = model_of("DFT", {"x": x, **consts}, consts=consts, opset=20, inverse=inverse, onesided=onesided)
        (y,) = backend.run_model(model, [x])
        np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], want, atol=2e-6 * np.abs(want).max())


@pytest.mark.medium
@pytest.mark.parametrize("length", [1, 5, 8, 1025, 1200])
def test_inverse_of_one_sided_spectrum(length: int) -> None:
    rng = np.random.default_rng(length)
    x = normal(rng, 2, length // 2 + 1, 2)
    want = np.fft.irfft(x[..., 0] + 1j * x[..., 1].astype(np.float64), length, axis=1)[..., None]
    consts = {"n": np.int64(length)}
    model = model_of("DFT", {"x": x, **consts}, consts=consts, opset=20, inverse=1, onesided=1)
    (y,) = backend.run_model(model, [x])
    np.testing.assert_allclose(y, want, atol=2e-6 * np.abs(want).max())


@pytest.mark.medium
@pytest.mark.parametrize(("samples", "step", "width", "onesided"), [(128, 8, 16, 1), (100, 7, 25, 0), (64, 64, 64, 1)])
def test_stft(samples: int, step: int, width: int, onesided: int) -> None:
    rng = np.random.default_rng(samples)
    feeds = {"x": normal(rng, 2, samples, 1), "step": np.int64(step), "w": normal(rng, width), "n": np.int64(width)}
    check("STFT", feeds, atol=1e-4, opset=17, onesided=onesided)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(seed: int, mode: str) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(3, 12, 2))
    count = int(rng.integers(1, 5))
    corners = np.sort(rng.uniform(-3, 2 * max(height, width) + 3, (count, 2, 2)), axis=1).reshape(count, 4)
    feeds = {
        "x": normal(rng, 2, 3, height, width), "rois": corners.astype(np.float32),
        "batch": rng.integers(0, 2, count).astype(np.int64),
    }  # fmt: skip
    modes = {"coordinate_transformation_mode": ["half_pixel", "output_half_pixel"][seed % 2]}
    check(
        "RoiAlign", feeds, mode=mode, output_height=int(rng.integers(1, 4)), output_width=int(rng.integers(1, 4)),
        sampling_ratio=int(rng.integers(0, 3)), spatial_scale=0.5, opset=16, **modes,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_max_roi_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 4
    corners = np.sort(rng.integers(0, 20, (count, 2, 2)), axis=1).reshape(count, 4)
    rois = np.concatenate([rng.integers(0, 2, (count, 1)), corners], axis=1).astype(np.float32)
    feeds = {"x": normal(rng, 2, 3, 9, 11), "rois": rois}
    check("MaxRoiPool", feeds, pooled_shape=[2, 3], spatial_scale=0.5, opset=1)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(3))
def test_deform_conv(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, offset_group = (1, 2) if seed % 2 else (2, 1)
    n, channels, outputs, kernel = 2, 4, 6, (3, 2)
    strides, dilations, pads = [1, 2], [2, 1], [1, 0, 2, 1]
    x = normal(rng, n, channels, 7, 8)
    size = [(7 + 1 + 2 - 2 * 2 - 1) // 1 + 1, (8 + 0 + 1 - 1 - 1) // 2 + 1]
    taps = kernel[0] * kernel[1]
    feeds = {
        "x": x, "w": normal(rng, outputs, channels // group, *kernel),
        "offset": 2 * normal(rng, n, offset_group * taps * 2, *size), "b": normal(rng, outputs),
        "mask": rng.random((n, offset_group * taps, *size)).astype(np.float32) if seed else None,
    }  # fmt: skip
    check(
        "DeformConv", feeds, by_reference, atol=1e-5, kernel_shape=list(kernel), strides=strides, dilations=dilations,
        pads=pads, group=group, offset_group=offset_group,
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_det(n: int) -> None:
    x = normal(np.random.default_rng(n), 5, n, n)
    x[3, :, 0] = 0  # singular
    x[4] = np.eye(n)[::-1]  # every pivot is off the diagonal
    check("Det", {"x": x})


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    rng = np.random.default_rng(0)
    starts = np.array([0, 3, 4] if mode == "circular" else [0, 3, 2])
    feeds = {"past": normal(rng, 3, 2, 5, 4), "update": normal(rng, 3, 2, 2, 4), "at": starts}
    check("TensorScatter", feeds, by_reference, opset=24, mode=mode)


def test_batch_normalization_in_training() -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": normal(rng, 3, 4, 5, 2), **{n: normal(rng, 4) for n in ("scale", "bias", "mean")}}
    feeds["var"] = rng.random(4).astype(np.float32)
    check("BatchNormalization", feeds, outputs=3, opset=15, training_mode=1, momentum=0.7, epsilon=1e-3)


@pytest.mark.parametrize("op", ["Adagrad", "Adam", "Momentum"])
@pytest.mark.parametrize("step", [0, 3])
def test_optimiser_steps(op: str, step: int) -> None:
    rng = np.random.default_rng(step)
    states = {"Adagrad": 1, "Adam": 2, "Momentum": 1}[op]
    shapes = [(3,), (2, 4)]
    feeds: dict[str, np.ndarray] = {"r": np.float32(0.1), "t": np.int64(step)}
    for group in range(2 + states):
        feeds |= {f"i{group}_{k}": np.abs(normal(rng, *s)) for k, s in enumerate(shapes)}
    attrs = {
        "Adagrad": {"decay_factor": 0.2, "norm_coefficient": 0.01},
        "Adam": {"alpha": 0.8, "beta": 0.9, "norm_coefficient": 0.01, "norm_coefficient_post": 0.02, "epsilon": 1e-4},
        "Momentum": {"alpha": 0.9, "beta": 0.7, "norm_coefficient": 0.01, "mode": "nesterov"},
    }[op]
    domain = "ai.onnx.preview.training"
    check(op, feeds, by_reference, outputs=2 * (1 + states), opset=1, domain=domain, **attrs)  # type: ignore[arg-type]


def test_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Tanh", ["p"], ["t"]),
        helper.make_node("Exp", ["t"], ["e"]), helper.make_node("Mul", ["e", "c"], ["m"]),
        helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0),
        helper.make_node("Gradient", ["a", "b"], ["da", "db"], xs=["a", "b"], y="y", domain="ai.onnx.preview.training"),
    ]  # fmt: skip
    outputs = dict.fromkeys(("y", "da", "db"), (TensorProto.DOUBLE, None))
    rep = backend.prepare(onnx_models.model_of(nodes, {"a": a, "b": b}, outputs, {"c": np.array([0.5, -2.0])}))
    _, da, db = rep.run([a, b])
    for index, (value, slope) in enumerate(((a, da), (b, db))):
        for at in np.ndindex(value.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [a.copy(), b.copy()]
                moved[index][at] += step
                ends.append(float(rep.run(moved)[0]))
            assert slope[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.medium
@pytest.mark.parametrize("source", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_to_small_floats(source: type, saturate: int) -> None:
    """Every exponent, ties and specials; equal codes."""
    rng = np.random.default_rng(0)
    specials = [0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 465, 480, 240, 248, 249, 57344, 61440, 61441, 6, 7, 5, 0.25]
    x = np.concatenate([rng.normal(size=2000) * 10.0 ** rng.uniform(-7, 6, 2000), specials, [2.0**-9, 2.0**-10]])
    with np.errstate(over="ignore"):
        x = x.astype(source)
    kinds = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1", "FLOAT8E8M0")
    for name in kinds:
        model = model_of("Cast", {"x": x}, opset=25, to=getattr(TensorProto, name), saturate=saturate)
        (y,) = backend.run_model(model, [x])
        with np.errstate(all="ignore"):
            (want,) = by_reference(model, {"x": x})
        a, b = y.astype(np.float32), np.asarray(want).astype(np.float32)
        np.testing.assert_array_equal(a, b, err_msg=name)
        kept = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[kept]), np.signbit(b[kept]), err_msg=name)


def test_doubles_are_rounded_once() -> None:
    """A double just above a tie rounds up; rounded to float32 first, it would be a tie. (ml_dtypes does so.)"""
    x = np.array([1 + 2**-4 + 2**-40, -1 - 2**-4 - 2**-40])
    (y,) = backend.run_model(model_of("Cast", {"x": x}, opset=25, to=TensorProto.FLOAT8E4M3FN), [x])
    np.testing.assert_array_equal(y.astype(np.float64), [1.125, -1.125])


@pytest.mark.medium
@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("rows", [(3,), ()], ids=["matrix", "vector"])
def test_blocked_quantisation_to_small_integers(name: str, rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    dtype = np.dtype(getattr(ml_dtypes, name))
    x, scale = 4 * normal(rng, *rows, 12), rng.uniform(0.3, 1, (*rows, 3)).astype(np.float32)
    zero = rng.integers(-1 if name[0] == "i" else 0, 2, (*rows, 3)).astype(dtype)
    model = model_of("QuantizeLinear", {"x": x, "s": scale, "z": zero}, opset=25, axis=-1, block_size=4)
    (q,) = backend.run_model(model, [x, scale, zero])
    (want,) = by_reference(model, {"x": x, "s": scale, "z": zero})
    assert q.dtype == dtype
    np.testing.assert_array_equal(q.astype(np.int32), want.astype(np.int32))
    model = model_of("DequantizeLinear", {"q": q, "s": scale, "z": zero}, opset=25, axis=-1, block_size=4)
    (y,) = backend.run_model(model, [q, scale, zero])
    (want,) = by_reference(model, {"q": q, "s": scale, "z": zero})
    np.testing.assert_array_equal(y, want)


def random_tree(rng: np.random.Generator, features: int, depth: int) -> list[dict[str, Any]]:
    """Nodes of a tree, the root first."""
    nodes: list[dict[str, Any]] = [{}]

    def grow(at: int, left: int) -> None:
        if left == 0 or rng.random() < 0.2:
            nodes[at] = {"mode": "LEAF", "feature": 0, "value": 0.0, "yes": 0, "no": 0, "missing": 0}
            return
        yes, no = len(nodes), len(nodes) + 1
        nodes.extend([{}, {}])
        mode = str(rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]))
        nodes[at] = {
            "mode": mode, "feature": int(rng.integers(features)), "value": float(np.float32(rng.normal())),
            "yes": yes, "no": no, "missing": int(rng.integers(2)),
        }  # fmt: skip
        grow(yes, left - 1)
        grow(no, left - 1)

    grow(0, depth)
    return nodes


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_ensembles(aggregate: str) -> None:
    """Random trees with NaN in the data, two targets."""
    rng = np.random.default_rng(len(aggregate))
    features, targets = 5, 2
    trees = [random_tree(rng, features, 6) for _ in range(7)]
    rows = [(t, k, node) for t, tree in enumerate(trees) for k, node in enumerate(tree)]
    leaves = [
        (t, k, int(rng.integers(targets)), float(np.float32(rng.normal()))) for t, k, n in rows if n["mode"] == "LEAF"
    ]
    attrs: dict[str, Any] = {
        "nodes_treeids": [t for t, _, _ in rows], "nodes_nodeids": [k for _, k, _ in rows],
        "nodes_featureids": [n["feature"] for *_, n in rows], "nodes_values": [n["value"] for *_, n in rows],
        "nodes_modes": [n["mode"] for *_, n in rows], "nodes_truenodeids": [n["yes"] for *_, n in rows],
        "nodes_falsenodeids": [n["no"] for *_, n in rows],
        "nodes_missing_value_tracks_true": [n["missing"] for *_, n in rows],
        "target_treeids": [leaf[0] for leaf in leaves], "target_nodeids": [leaf[1] for leaf in leaves],
        "target_ids": [leaf[2] for leaf in leaves], "target_weights": [leaf[3] for leaf in leaves],
        "n_targets": targets, "aggregate_function": aggregate,
    }  # fmt: skip
    if aggregate == "SUM":  # onnxruntime leaves the others' out where no tree has the target
        attrs["base_values"] = [0.5, -1.0]
    x = normal(rng, 40, features)
    x[rng.random(x.shape) < 0.1] = np.nan
    check("TreeEnsembleRegressor", {"x": x}, opset=3, domain="ai.onnx.ml", **attrs)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Scaler", {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 2.0, 1.5]}), ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}), ("Normalizer", {"norm": "MAX"}), ("Binarizer", {"threshold": 0.3}),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 4.0], "intercepts": [0.1, 0.2], "targets": 2}),
        ("Imputer", {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": float("nan")}),
    ],
)  # fmt: skip
def test_machine_learning_ops(op: str, attrs: dict[str, Any]) -> None:
    x = np.abs(normal(np.random.default_rng(0), 4, 3))
    if op == "Imputer":
        x[1, 2] = x[0, 0] = np.nan
    check(op, {"x": x}, opset=1, domain="ai.onnx.ml", **attrs)


def test_random_ops_follow_their_seed() -> None:
    for op, attrs in (("RandomNormal", {"mean": 1.0, "scale": 2.0}), ("RandomUniform", {"low": -1.0, "high": 3.0})):
        model = model_of(op, {}, shape=[50, 40], seed=3.0, **attrs)
        (y,) = backend.run_model(model, [])
        np.testing.assert_allclose(y, by_reference(model, {})[0], rtol=1e-6)
        (other,) = backend.run_model(model_of(op, {}, shape=[50, 40], seed=4.0, **attrs), [])
        assert not np.array_equal(y, other)


def test_multinomial_and_dropout_have_their_frequencies() -> None:
    logs = np.log(np.array([[0.1, 0.2, 0.7]], np.float32)).repeat(2, axis=0)
    (y,) = backend.run_model(model_of("Multinomial", {"x": logs}, sample_size=4000, seed=1.0), [logs])
    for row in y:
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, [0.1, 0.2, 0.7], atol=0.03)
    x = np.ones((50, 80), np.float32)
    consts = {"ratio": np.float32(0.25), "training": np.bool_(True)}
    (y, mask) = backend.run_model(model_of("Dropout", {"x": x, **consts}, 2, consts=consts, seed=1), [x])
    np.testing.assert_allclose(y, np.where(mask, 1 / 0.75, 0), rtol=1e-6)
    assert mask.mean() == pytest.approx(0.75, abs=0.03)
