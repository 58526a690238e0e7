"""RNN, GRU, LSTM against onnxruntime: directions, activations, lengths, peepholes, clipping."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright.onnx_backend as backend
from tests.common import onnx_models

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


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_and_optional_inputs(op: str, direction: str) -> None:
    for seed in range(4):
        check(op, seed, direction=direction)


@pytest.mark.parametrize("seed", range(2))
def test_gru_linear_before_reset(seed: int) -> None:
    check("GRU", seed, linear_before_reset=1, direction="bidirectional")


@pytest.mark.parametrize("op", ["RNN", "GRU"])
def test_activations_with_parameters(op: str) -> None:
    names = ["LeakyRelu"] if op == "RNN" else ["HardSigmoid", "ScaledTanh"]
    alphas, betas = ([0.3], []) if op == "RNN" else ([0.25, 0.9], [0.4, 1.1])
    check(op, 3, activations=names, activation_alpha=alphas, **({"activation_beta": betas} if betas else {}))


@pytest.mark.parametrize("names", [["Sigmoid", "Softsign", "Relu"], ["HardSigmoid", "Elu", "Softplus"]])
def test_lstm_activations(names: list[str]) -> None:
    check("LSTM", 5, activations=names)


@pytest.mark.parametrize("op", ["RNN", "GRU"])
def test_clip(op: str) -> None:
    """Not LSTM: onnxruntime keeps a clipped cell state where the standard clips inputs of activations only."""
    check(op, 7, clip=0.3)


def test_lstm_coupled_gates() -> None:
    check("LSTM", 7, input_forget=1)


def test_constant_operands_are_not_folded() -> None:
    """The reference implementation, which evaluates constants, ignores lengths; the kernel does not."""
    check("LSTM", 3, constant=True)
    check("GRU", 4, constant=True)
