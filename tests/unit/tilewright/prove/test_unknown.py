"""Unknown functions: the operators of CPU steps have one name only if all that they depend on is the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.prove.checker.cells import VALUE
from tilewright.prove.checker.evaluate import evaluate
from tilewright.prove.checker.graph import Step, Value
from tilewright.prove.checker.names import Names

Array = np.ndarray
INT8, FLOAT = np.dtype(np.int8), np.dtype(np.float32)


def result(op: str, cells: Array, x: Value, y: Value, *constants: Array, **attributes: Any) -> Array:
    """Values of an operator of a CPU step on cells and constants."""
    names, given = Names(3), [f"c{i}" for i in range(len(constants))]
    values = {"x": x, "y": y} | {n: Value(c.shape, c.dtype, c) for n, c in zip(given, constants, strict=True)}
    operands = {"x": cells} | {n: names.random(c.shape, c.tobytes()) for n, c in zip(given, constants, strict=True)}
    step = Step(op, op, ("x", *given), ("y",), attributes)
    return evaluate(names, step, values, operands, [(op, op)])[0][..., VALUE]


def test_a_scale_for_each_channel_is_not_that_of_elements() -> None:
    """Two channels of one value have other results, and a whole scale is that of each element."""
    cells = np.tile(Names(3).random((1, 1), "x"), (1, 2, 1))
    scales = np.array([0.5, 2], np.float32)
    x, y = Value((1, 2), INT8, None, scales, np.zeros(2, np.int32), 1), Value((1, 2), FLOAT)
    found = result("DequantizeLinear", cells, x, y, scales, axis=1)
    assert not np.array_equal(found[:, 0], found[:, 1])
    x = Value((1, 2), INT8, None, scales[:1].reshape(()), np.zeros((), np.int32))
    found = result("DequantizeLinear", cells, x, y, scales[:1].reshape(()), axis=1)
    assert np.array_equal(found[:, 0], found[:, 1])


def test_what_a_result_is_scaled_by_is_a_part_of_its_name() -> None:
    cells, zero = Names(3).random((4,), "x"), np.zeros((), np.int32)
    x = Value((4,), INT8, None, np.float32(0.5), zero)
    one, other = (Value((4,), INT8, None, np.float32(scale), zero) for scale in (0.25, 0.5))
    found = result("Thing", cells, x, one)
    assert np.array_equal(result("Thing", cells, x, one), found)
    assert not np.array_equal(result("Thing", cells, x, other), found)
    assert not np.array_equal(result("Thing", cells, x, one, attribute=1), found)
