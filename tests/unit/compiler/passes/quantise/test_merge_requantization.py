"""Two Q-DQ pairs with ops between them that change nothing: which onnxruntime removes, so that the pairs merge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.common import onnx_models
from tests.reference.quantized_models import Model

LONGEST = int(np.iinfo(np.int64).max)
Step = tuple[str, tuple[Any, ...], dict[str, Any]]


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _floats(value: float, *shape: int) -> np.ndarray:
    return np.full(shape, value, np.float32)


CHAINS: dict[str, list[Step]] = {
    "identity": [("Identity", (), {})],
    "dropout": [("Dropout", (), {})],
    "dropout not in training": [("Dropout", (_floats(0.5), np.array(False)), {})],
    "cast": [("Cast", (), {"to": 1})],
    "expand": [("Expand", (_ints(1, 3, 6, 6),), {})],
    "expand by ones": [("Expand", (_ints(1),), {})],
    "expand to a scalar": [("Expand", (_ints(),), {})],
    "add": [("Add", (_floats(0, 1, 1),), {})],
    "add per channel": [("Add", (_floats(0, 1, 3, 1, 1),), {})],
    "add with more dimensions": [("Add", (_floats(0, 1, 1, 1, 1, 1),), {})],
    "sub": [("Sub", (_floats(0),), {})],
    "mul": [("Mul", (_floats(1),), {})],
    "div": [("Div", (_floats(1, 1),), {})],
    "nearly": [("Mul", (_floats(1 + 2**-23),), {})],
    "power": [("Pow", (_floats(1),), {})],
    "several": [("Identity", (), {}), ("Mul", (_floats(1),), {}), ("Cast", (), {"to": 1})],
    "slice": [("Slice", (_ints(0), _ints(LONGEST), _ints(1)), {})],
    "slice to an end": [("Slice", (_ints(0), _ints(100), _ints(1)), {})],
    "reshape": [("Reshape", (_ints(1, 3, 6, 6),), {})],
    "squeeze": [("Unsqueeze", (_ints(0),), {}), ("Squeeze", (_ints(0),), {})],
    "concatenation of one": [("Concat", (), {"axis": 1})],
    "transpose": [("Transpose", (), {"perm": [0, 1, 2, 3]})],
    "transposes": [("Transpose", (), {"perm": [0, 2, 3, 1]}), ("Transpose", (), {"perm": [0, 3, 1, 2]})],
    "resize": [("Resize", (None, np.ones(4, np.float32)), {})],
}


def _chain(m: Model, x: str, steps: list[Step]) -> list[str]:
    """The results of ops one behind the other."""
    made = []
    for op, constants, attrs in steps:
        x = m.op(op, x, *("" if c is None else m.const(c) for c in constants), **attrs)
        made.append(x)
    return made


@pytest.mark.parametrize("read", ["once", "twice", "output"])
@pytest.mark.parametrize("name", list(CHAINS))
def test_between_two_pairs(name: str, read: str) -> None:
    """The results are merged pairs or two roundings, with scales that make ties; also where more reads the floats."""
    for first, second in (((0.05, 3), (0.1, -2)), ((0.05, 0), (0.075, 0))):
        m = Model(np.int8, seed=1)
        x = m.input((1, 3, 6, 6), *first)
        made = _chain(m, x, CHAINS[name])
        m.output(m.requantized(made[-1], *second))
        if read == "twice":
            m.output(m.op("Neg", made[0]))
        if read == "output":
            m.output(made[-1])
        onnx_models.assert_equal(m.build(), m.feeds())


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("chain", [[], CHAINS["identity"], CHAINS["div"], CHAINS["reshape"]])
def test_types_of_pairs(chain: list[Step], dtype: type) -> None:
    """Pairs of 16 bits merge, too; values half a step of the second pair off, and ranges of either zero point."""
    middle = (int(np.iinfo(dtype).min) + int(np.iinfo(dtype).max) + 1) // 2
    for first, second in (((0.05, 0), (0.1, 0)), ((0.25, 0), (0.05, 5)), ((0.05, -7), (0.075, middle))):
        m = Model(dtype, seed=4)
        x = m.input((1, 3, 6, 6), first[0], middle + first[1])
        m.output(m.requantized([x, *_chain(m, x, chain)][-1], second[0], middle + second[1] - second[1] // 2))
        feeds = m.feeds()
        values = np.random.default_rng(5).integers(-99, 99, (1, 3, 6, 6)) * np.float32(second[0] / 2)
        onnx_models.assert_equal(m.build(), feeds, {name: values.astype(np.float32) for name in feeds})


@pytest.mark.parametrize("name", ["identity", "reshape"])
def test_between_integers(name: str) -> None:
    m = Model(np.int8, seed=2)
    s, z = m.const(0.05, np.float32), m.const(3, np.int8)
    m.input((1, 3, 6, 6), 0.05, 3)
    q = m.nodes[-2].output[0]
    m.nodes.pop()
    y = m.op("DequantizeLinear", _chain(m, q, CHAINS[name])[-1], s, z)
    m.output(m.requantized(m.requantized(m.op("Identity", y), 0.1, -2), 0.07, 1))
    onnx_models.assert_equal(m.build(), m.feeds())


def test_reversed_operands() -> None:
    """0 + x and 1 * x, but not 0 - x and 1 / x."""
    for op, value in (("Add", 0), ("Mul", 1), ("Sub", 0)):
        m = Model(np.int8, seed=3)
        y = m.op(op, m.const(value, np.float32), m.input((1, 3, 6, 6), 0.05, 3))
        m.output(m.requantized(y, 0.1, -2))
        onnx_models.assert_equal(m.build(), m.feeds())
