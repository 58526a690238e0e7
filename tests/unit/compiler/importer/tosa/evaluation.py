"""Evaluates TOSA programs by numpy and Python's own `if` and `while`, as the specification's pseudocode does.

It knows few operations: it is the reference for control flow that IREE does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.importer.tosa.records import Block, TosaModule, TosaOp

Values = dict[int, np.ndarray]


def evaluate(module: TosaModule, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results of a program by name."""
    values = {**module.constants, **dict(zip(module.body.arguments, (inputs[n] for n in module.inputs)))}
    return dict(zip(module.outputs, _block(module, module.body, values)))


def _block(module: TosaModule, block: Block, values: Values) -> list[np.ndarray]:
    for op in block.ops:
        given = [values[k] for k in op.operands]
        if op.name == "cond_if":
            side = op.blocks[0 if given[0] else 1]
            made = _block(module, side, {**values, **dict(zip(side.arguments, given[1:]))})
        elif op.name == "while_loop":
            condition, body = op.blocks
            made = given
            while _block(module, condition, {**values, **dict(zip(condition.arguments, made))})[0]:
                made = _block(module, body, {**values, **dict(zip(body.arguments, made))})
        else:
            made = [np.asarray(_RULES[op.name](op, *given))]
        for k, value in zip(op.results, made):
            values[k] = value.astype(module.types[k].dtype).reshape(module.types[k].shape)
    return [values[k] for k in block.returns]


def _rescaled(op: TosaOp, x: np.ndarray, multiplier: Any, shift: Any, zero: Any, out_zero: Any) -> np.ndarray:
    """RESCALE of up to 32 bits into 8 or 32."""
    value, multiplier, shift = (v.astype(np.int64) for v in (x, multiplier, shift))
    value = value - int(zero[0])
    rounding = np.int64(1) << (shift - 1)
    if op.attrs["rounding_mode"] == "DOUBLE_ROUND":
        rounding = rounding + np.where(shift > 31, np.where(value >= 0, 1 << 30, -(1 << 30)), 0)
    found = ((value * multiplier + rounding) >> shift) + int(out_zero[0])
    limits = np.iinfo(out_zero.dtype)
    return np.clip(found, limits.min, limits.max)


def _padded(op: TosaOp, x: np.ndarray, sizes: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.pad(x, sizes.reshape(-1, 2), constant_values=value.reshape(-1)[0])


def _sliced(op: TosaOp, x: np.ndarray, start: Sequence[int], size: Sequence[int]) -> np.ndarray:
    return x[tuple(slice(int(a), int(a) + int(n)) for a, n in zip(start, size))]


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "rescale": _rescaled,
    "pad": _padded,
    "slice": _sliced,
    "add": lambda op, x, y: x + y,
    "sub": lambda op, x, y: x - y,
    "maximum": lambda op, x, y: np.maximum(x, y),
    "minimum": lambda op, x, y: np.minimum(x, y),
    "mul": lambda op, x, y, shift: x * y,
    "bitwise_and": lambda op, x, y: x & y,
    "logical_and": lambda op, x, y: x & y,
    "greater": lambda op, x, y: x > y,
    "clamp": lambda op, x: np.clip(x, op.attrs["min_val"], op.attrs["max_val"]),
    "table": lambda op, x, table: table[x.astype(np.int64) + 128],
    "reverse": lambda op, x: np.flip(x, op.attrs["axis"]),
    "transpose": lambda op, x: x.transpose(op.attrs["perms"]),
    "reshape": lambda op, x, shape: x.reshape(shape),
    "reduce_max": lambda op, x: x.max(axis=op.attrs["axis"], keepdims=True),
}
