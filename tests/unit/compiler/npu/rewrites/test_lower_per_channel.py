"""Functions with constants for each channel on the NPU: onnxruntime's bytes, which computes them in floats."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.rewrites.turns import compared, turns_of
from tilewright.isa.config import PRESETS

CHANNELS = 20


def model(op: str, dtype: type, scale: float, factors: np.ndarray, dequantised: bool) -> Model:
    """Returns a model of convolution, function and convolution, with the function's result as an output too."""
    m = Model(dtype, seed=4)
    least = int(np.iinfo(dtype).min)
    x = m.requantized(
        m.op("Conv", m.input((1, 8, 12, 12), 0.05, least + 120), m.weights((CHANNELS, 8, 1, 1))), 0.05, least + 117
    )
    if dequantised:
        own = m.op(
            "DequantizeLinear", m.const(np.rint(factors * 100), np.int8), m.const(0.01, np.float32), m.const(0, np.int8)
        )
    else:
        own = m.const(factors, np.float32)
    y = m.op(op, *((own, x) if op in ("Add", "Mul") and dequantised else (x, own)))
    y = m.requantized(y, scale, least + 130)
    m.output(y)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, CHANNELS, 1, 1))), 0.3, least + 128))
    return m


def turns(m: Model, config: str) -> int:
    """Returns the number of NPU steps, after the functional simulator gave onnxruntime's bytes."""
    return turns_of(compared(m, config))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("dtype", "config", "dequantised"),
    [
        (np.int8, "tiny", False),
        (np.int8, "base", True),
        (np.uint8, "tiny", True),
        (np.uint8, "base", False),
        *(
            pytest.param(*other, marks=pytest.mark.long)
            for other in [
                (np.int8, "tiny", True), (np.int8, "base", False), (np.uint8, "tiny", False), (np.uint8, "base", True),
            ]
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["PRelu", "Mul", "Div", "Add", "Sub"])
def test_equals_onnxruntime(op: str, dtype: type, config: str, dequantised: bool) -> None:
    """Slopes that are negative, 0, 1 and greater give onnxruntime's bytes."""
    factors = np.random.default_rng(1).normal(0.3, 0.5, (CHANNELS, 1, 1)).astype(np.float32)
    factors[:3, 0, 0] = 0, 1, -1
    if op == "Div":
        factors = np.sign(factors) + factors + (factors == 0)
    assert turns(model(op, dtype, 0.0437, factors, dequantised), config) == 1


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("scale", [0.05, 0.031, 0.0917])
def test_subtracted_from_one_for_each_channel(scale: float, dtype: type) -> None:
    m = Model(dtype, seed=6)
    least = int(np.iinfo(dtype).min)
    x = m.op("Conv", m.input((2, 8, 9, 11), 0.05, least + 120), m.weights((CHANNELS, 8, 1, 1)))
    x = m.requantized(x, 0.05, least + 117)
    y = m.op("Sub", m.const(np.random.default_rng(2).normal(0, 2, (1, CHANNELS, 1, 1)), np.float32), x)
    y = m.requantized(y, scale, least + 130)
    m.output(y)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, CHANNELS, 1, 1))), 0.3, least + 128))
    assert turns(m, "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize("shape", [(1, 40), (3, 40), (2, 5, 40)])
@pytest.mark.parametrize(("op", "config"), [("PRelu", "tiny"), ("Mul", "base"), ("Add", "tiny")])
def test_rows_of_channels(op: str, config: str, shape: tuple[int, ...]) -> None:
    """Tensors with two and three axes, between products."""
    m = Model(np.int8, seed=7)
    x = m.requantized(m.op("MatMul", m.input(shape, 0.05, 4), m.weights((40, CHANNELS), axis=1)), 0.05, -11)
    factors = np.random.default_rng(1).normal(0.3, 0.5, CHANNELS).astype(np.float32)
    y = m.requantized(m.op(op, x, m.const(factors, np.float32)), 0.0437, 2)
    m.output(y)
    m.output(m.requantized(m.op("MatMul", y, m.weights((CHANNELS, 8), axis=1)), 0.3, 0))
    assert turns(m, config) == 1


@pytest.mark.medium
def test_what_is_added_beyond_the_limits() -> None:
    """An Add that saturates every value of a channel runs on the CPU, with equal bytes."""
    added = np.linspace(-1, 1, CHANNELS, dtype=np.float32).reshape(-1, 1, 1)
    added[3] = 1e9
    assert turns(model("Add", np.int8, 0.05, added, False), "base") == 2


@pytest.mark.medium
def test_ties_that_floats_decide() -> None:
    """Results that are half a step for every step of the operand stay on the CPU: no scale rounds them as floats do."""
    factors = np.tile(np.float32([0.4, 0.3]), CHANNELS // 2).reshape(-1, 1, 1)
    assert turns(model("PRelu", np.int8, 0.04, factors, False), "base") == 2


@pytest.mark.medium
@pytest.mark.parametrize(
    ("op", "scale", "told"), [("PRelu", 0.04, True), ("PRelu", 0.0437, False), ("Add", 0.04, True)]
)
def test_why_it_stays_on_the_cpu(op: str, scale: float, told: bool) -> None:
    """A note of the program names functions for which no scale gives the bytes."""
    factors = np.tile(np.float32([0.4, 0.3]), CHANNELS // 2).reshape(-1, 1, 1)
    program = tw.compile(model(op, np.int8, scale, factors, False).build(), PRESETS["base"])
    assert any(f"runs on the CPU: {op} with several constants" in note for note in program.notes) == told


@pytest.mark.medium
def test_one_slope_is_a_table() -> None:
    assert turns(model("PRelu", np.int8, 0.04, np.full((1, 1, 1), 0.4, np.float32), False), "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize("op", ["PRelu", "Mul"])
def test_a_scale_of_its_own_for_reading(op: str) -> None:
    """A DequantizeLinear may have another scale than the QuantizeLinear before it."""
    m = Model(np.int8, seed=4)
    x = m.op("Conv", m.input((1, 8, 6, 6), 0.05, 0), m.weights((CHANNELS, 8, 1, 1)))
    zero = m.const(0, np.int8)
    x = m.op("QuantizeLinear", x, m.const(0.05, np.float32), zero)
    x = m.op("DequantizeLinear", x, m.const(0.11, np.float32), zero)
    factors = np.linspace(0.1, 0.9, CHANNELS, dtype=np.float32).reshape(-1, 1, 1)
    y = m.requantized(m.op(op, x, m.const(factors, np.float32)), 0.05, 0)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, CHANNELS, 1, 1))), 0.3, 0))
    assert turns(m, "base")
