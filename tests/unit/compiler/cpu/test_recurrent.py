"""RNN, GRU, LSTM against onnxruntime: directions, activations, lengths, peepholes, clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright.onnx_backend as backend
from tests.common import onnx_models
from tilewright.api.native import NativeModel
from tilewright.compiler.cpu import Target

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def check(op: str, seed: int, constant: bool = False, **attrs: object) -> None:
    """Random sizes and optional inputs; equal to onnxruntime within float32 rounding of a few steps."""
    rng = np.random.default_rng(seed)
    steps, batch, size, hidden = (int(n) for n in rng.integers(1, [7, 4, 6, 20]))
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    count = GATES[op]
    shapes: dict[str, tuple[int, ...]] = {
        "x": (steps, batch, size), "w": (directions, count * hidden, size), "r": (directions, count * hidden, hidden),
        "b": (directions, 2 * count * hidden), "lens": (batch,), "h": (directions, batch, hidden),
    }  # fmt: skip
    if op == "LSTM":
        shapes |= {"c": (directions, batch, hidden), "p": (directions, 3 * hidden)}
    feeds = {n: rng.normal(0, 0.7, s).astype(np.float32) for n, s in shapes.items()}
    feeds["lens"] = rng.integers(1, steps + 1, batch).astype(np.int32)
    left_out = {n for n in ("b", "lens", "h", "c", "p") if n in feeds and rng.random() < 0.4}
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, ["" if n in left_out else n for n in shapes], outputs, hidden_size=hidden, **attrs)
    given = {n: v for n, v in feeds.items() if n not in left_out}
    inputs = {} if constant else given
    constants = {n: v for n, v in given.items() if n not in inputs}
    floats = dict.fromkeys(outputs, (TensorProto.FLOAT, None))
    model = onnx_models.model_of([node], inputs, floats, constants, opset=14)
    want = onnx_models.run(model, inputs).values()
    for name, found, expected in zip(outputs, backend.run_model(model, inputs), want):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6, err_msg=f"{name}, seed {seed}")


@pytest.mark.medium
@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize(
    ("direction", "seeds"),
    [
        ("forward", (0, 1)),
        ("reverse", (2, 3)),
        ("bidirectional", (0, 3)),
        *(pytest.param(way, range(4), marks=pytest.mark.long) for way in ("forward", "reverse", "bidirectional")),
    ],
)
def test_directions_and_optional_inputs(op: str, direction: str, seeds: Sequence[int]) -> None:
    for seed in seeds:
        check(op, seed, direction=direction)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(2))
def test_gru_linear_before_reset(seed: int) -> None:
    check("GRU", seed, linear_before_reset=1, direction="bidirectional")


@pytest.mark.medium
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru_behind_gru(direction: str) -> None:
    """Two networks of one op in a row: what one keeps between steps is not the other's."""
    rng = np.random.default_rng(0)
    hidden, ways = 8, 2 if direction == "bidirectional" else 1
    nodes, constants, name, size = [], {}, "x", 16
    for k in range(2):
        shapes = {"w": (ways, 3 * hidden, size), "r": (ways, 3 * hidden, hidden), "b": (ways, 6 * hidden)}
        constants |= {f"{n}{k}": rng.normal(0, 0.5, s).astype(np.float32) for n, s in shapes.items()}
        size = ways * hidden
        constants[f"shape{k}"] = np.array([5, 1, size])
        nodes += [
            helper.make_node(
                "GRU", [name, *(f"{n}{k}" for n in shapes)], [f"y{k}"], direction=direction, hidden_size=hidden,
                linear_before_reset=1,
            ),
            helper.make_node("Transpose", [f"y{k}"], [f"t{k}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{k}", f"shape{k}"], [f"z{k}"]),
        ]  # fmt: skip
        name = f"z{k}"
    feeds = {"x": rng.normal(size=(5, 1, 16)).astype(np.float32)}
    model = onnx_models.model_of(nodes, feeds, dict.fromkeys(("z0", "z1"), (TensorProto.FLOAT, None)), constants)
    for found, expected in zip(backend.run_model(model, feeds), onnx_models.run(model, feeds).values()):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("op", ["RNN", "GRU"])
def test_activations_with_parameters(op: str) -> None:
    names = ["LeakyRelu"] if op == "RNN" else ["HardSigmoid", "ScaledTanh"]
    alphas, betas = ([0.3], []) if op == "RNN" else ([0.25, 0.9], [0.4, 1.1])
    check(op, 3, activations=names, activation_alpha=alphas, **({"activation_beta": betas} if betas else {}))


@pytest.mark.medium
@pytest.mark.parametrize("names", [["Sigmoid", "Softsign", "Relu"], ["HardSigmoid", "Elu", "Softplus"]])
def test_lstm_activations(names: list[str]) -> None:
    check("LSTM", 5, activations=names)


@pytest.mark.medium
@pytest.mark.parametrize("op", ["RNN", "GRU"])
def test_clip(op: str) -> None:
    """RNN and GRU clip as onnxruntime does. LSTM is left out: onnxruntime keeps a clipped cell state where the standard
    clips inputs of activations only."""
    check(op, 7, clip=0.3)


@pytest.mark.medium
def test_lstm_coupled_gates() -> None:
    check("LSTM", 7, input_forget=1)


@pytest.mark.medium
def test_constant_operands_are_not_folded() -> None:
    """The reference implementation, which evaluates constants, ignores lengths; the kernel does not."""
    check("LSTM", 3, constant=True)
    check("GRU", 4, constant=True)


def network(
    op: str, steps: int, batch: int, hidden: int, dtype: type = np.float32, fixed: bool = True, **attrs: object
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A node with weights that are constants or inputs, and its inputs."""
    rng = np.random.default_rng(steps * batch * hidden)
    directions, rows = 2 if attrs.get("direction") == "bidirectional" else 1, GATES[op] * hidden
    shapes = {"w": (directions, rows, 7), "r": (directions, rows, hidden), "b": (directions, 2 * rows)}
    weights = {n: (rng.uniform(-1, 1, s) / np.sqrt(hidden)).astype(dtype) for n, s in shapes.items()}
    feeds: dict[str, np.ndarray] = {"x": rng.normal(0, 1, (steps, batch, 7)).astype(dtype)}
    if attrs.get("layout"):
        feeds["x"] = feeds["x"].swapaxes(0, 1).copy()
    inputs = feeds if fixed else feeds | weights
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=hidden, **attrs)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = onnx_models.model_of([node], inputs, {"y": (kind, None)}, weights if fixed else {}, opset=14)
    return model, inputs


@pytest.mark.medium
@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize(("batch", "hidden"), [
    (9, 33), (17, 130), *(pytest.param(*size, marks=pytest.mark.long) for size in ((1, 40), (2, 64))),
])  # fmt: skip
def test_sizes_of_several_tiles(op: str, batch: int, hidden: int) -> None:
    """Several blocks of units, the last one not full, and several tiles of rows; weights known and not."""
    for reset in range(1 + (op == "GRU")):
        attrs: dict[str, Any] = {"linear_before_reset": 1} if reset else {}
        for fixed in (True, False):
            model, feeds = network(op, 6, batch, hidden, fixed=fixed, direction="bidirectional", **attrs)
            want = onnx_models.run(model, feeds)["y"]
            np.testing.assert_allclose(NativeModel(model)(feeds)["y"], want, rtol=1e-5, atol=3e-6)


@pytest.mark.medium
@pytest.mark.parametrize("target", [
    Target(triple="x86_64-unknown-linux-gnu", has_fma=False),
    Target(triple="x86_64-unknown-linux-gnu", cpu="haswell", vector_bits=256),
], ids=["sse", "avx2"])  # fmt: skip
@pytest.mark.parametrize("op", list(GATES))
def test_narrower_vectors(op: str, target: Target) -> None:
    model, feeds = network(op, 4, 3, 21)
    want = onnx_models.run(model, feeds)["y"]
    np.testing.assert_allclose(NativeModel(model, target=target)(feeds)["y"], want, rtol=1e-5, atol=3e-6)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types(dtype: type) -> None:
    """onnxruntime has none of these; they agree with float32 within the rounding of the narrower type."""
    model, feeds = network("LSTM", 4, 3, 21, dtype)
    single, _ = network("LSTM", 4, 3, 21)
    want = onnx_models.run(single, {n: v.astype(np.float32) for n, v in feeds.items()})["y"]
    tolerance = 2e-6 if dtype == np.float64 else 2e-3
    np.testing.assert_allclose(NativeModel(model)(feeds)["y"], want, rtol=0, atol=tolerance)


@pytest.mark.medium
@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("seed", range(3))
def test_between_quantised_tensors(op: str, seed: int) -> None:
    """int8 inputs, weights and outputs: onnxruntime computes the layer in floats, and so do we, to the same bytes."""
    rng = np.random.default_rng(seed)
    steps, batch, size, hidden = 12, 1 + seed, 24, 40
    rows = GATES[op] * hidden
    constants: dict[str, Any] = {
        "w": rng.integers(-127, 128, (1, rows, size)).astype(np.int8),
        "r": rng.integers(-127, 128, (1, rows, hidden)).astype(np.int8),
        "b": rng.normal(0, 0.3, (1, 2 * rows)).astype(np.float32),
        "sx": np.float32(0.03), "zx": np.int8(5), "sw": np.float32(0.003), "zw": np.int8(0), "sy": np.float32(0.01),
    }  # fmt: skip
    nodes = [
        *(helper.make_node("DequantizeLinear", [n, f"s{k}", f"z{k}"], [f"{n}d"]) for n, k in ("xx", "ww", "rw")),
        helper.make_node(op, ["xd", "wd", "rd", "b"], ["y"], hidden_size=hidden),
        helper.make_node("QuantizeLinear", ["y", "sy", "zw"], ["yq"]),
    ]
    feeds = {"x": rng.integers(-128, 128, (steps, batch, size)).astype(np.int8)}
    model = onnx_models.model_of(nodes, feeds, {"yq": (TensorProto.INT8, None)}, constants, opset=14)
    np.testing.assert_array_equal(NativeModel(model)(feeds)["yq"], onnx_models.run(model, feeds)["yq"])


@pytest.mark.medium
@pytest.mark.parametrize("op", list(GATES))
def test_batch_first(op: str) -> None:
    """Layout 1: onnxruntime has layout 0 only, which is the same with axes exchanged."""
    model, feeds = network(op, 5, 3, 12, layout=1, direction="bidirectional")
    other, _ = network(op, 5, 3, 12, direction="bidirectional")
    want = onnx_models.run(other, {"x": feeds["x"].swapaxes(0, 1).copy()})["y"]
    np.testing.assert_allclose(NativeModel(model)(feeds)["y"], want.transpose(2, 0, 1, 3), rtol=1e-5, atol=3e-6)


@pytest.mark.medium
@pytest.mark.parametrize(("op", "direction", "hidden"), [
    ("LSTM", "forward", 192), ("GRU", "forward", 256), ("GRU", "bidirectional", 256), ("RNN", "reverse", 400),
    ("LSTM", "forward", 24),
])  # fmt: skip
def test_threads_change_no_bit(op: str, direction: str, hidden: int) -> None:
    """Whether they share the blocks of a step, take a direction each, or one does it all."""
    model, feeds = network(op, 12, 2, hidden, direction=direction)
    want = NativeModel(model)(feeds)["y"]
    for threads in (2, 3):
        shared = NativeModel(model, threads=threads)
        for _ in range(3):
            np.testing.assert_array_equal(shared(feeds)["y"], want)
