"""Integer constants for Add, proven on all operand pairs.

The machine computes `clamp((a*ma + b*mb + c) >> shift)`; onnxruntime rounds a float expression. For given
multipliers and shift every pair (a, b) bounds c from both sides, so the feasible c form an interval; a search over
multipliers near the exact ratios finds one that is not empty for about 99 % of scale sets (`docs/numerics.md`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np

from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.int8_storage import StoredType, stored_limits, stored_type
from tilewright.isa import numerics

_MULTIPLIER_LIMIT = (1 << 23) - 1
_MAX_CANDIDATES = 256  # candidates for c: where there are more, many pairs are missed
_SOME = 16  # of so many pairs one is looked at first


def stored_add_constants(op: QAdd, a: Tensor, b: Tensor, y: Tensor) -> AddConstants | None:
    """Returns constants of VECTOR_ADD that equal a QAdd for stored values of a, b and y; None where there are none."""
    types = stored_type(a), stored_type(b), stored_type(y)
    if op.constants is not None:
        return _stored_constants(op.constants, *(shift for _, _, shift in types))
    return find_add_constants(*types, *stored_limits(y, op), op.floats)


def _stored_constants(given: AddConstants, oa: int, ob: int, oy: int) -> AddConstants | None:
    """Returns a QAdd's constants for values stored minus `oa`, `ob`, `oy`; None where VECTOR_ADD cannot hold them."""
    c = given.c + oa * given.ma + ob * given.mb - (oy << given.shift)
    reach = (abs(given.ma) + abs(given.mb)) * 128 + abs(c)
    if max(abs(given.ma), abs(given.mb)) > _MULTIPLIER_LIMIT or not 0 <= given.shift < 32 or reach >= 1 << 31:
        return None
    return AddConstants(given.ma, given.mb, c, given.shift)


@functools.lru_cache(maxsize=4096)
def find_add_constants(
    a_type: StoredType, b_type: StoredType, y_type: StoredType, low: int, high: int, floats: bool = False
) -> AddConstants | None:
    """Returns constants of VECTOR_ADD that equal the rule of a QAdd for all operands; None where none are found.

    Args:
        a_type, b_type, y_type: types of both operands and the result.
        low, high: clamp of the values as they are stored.
        floats: True if the rule is `numerics.add_floats`, False for `numerics.add_reference`.
    """
    if low >= high:
        return AddConstants(0, 0, 0, 0)
    a, b, target = _reference_results(a_type, b_type, y_type, low, high, floats)
    fa, fb, ft = _step_pairs(a, b, target)
    some = slice(None, None, _SOME)
    for ma, mb, shift in _multipliers(a_type, b_type, y_type):
        parts = ((fa[at], fb[at], ft[at]) for at in (some, slice(None)))  # a few pairs rule most multipliers out
        if any(_constant_range(x * ma + y * mb, z, shift, low, high) is None for x, y, z in parts):
            continue
        full = _constant_range(a * ma + b * mb, target, shift, low, high)
        if full is None:
            continue
        c = min(max((full[0] + full[1]) // 2, -(1 << 31)), (1 << 31) - 1)
        total = a * ma + b * mb + c
        if abs(total).max() < 1 << 31 and np.array_equal(np.clip(total >> shift, low, high), target):
            return AddConstants(ma, mb, int(c), shift)
    return None


@functools.lru_cache(maxsize=64)
def nearest_add_constants(
    a_type: StoredType, b_type: StoredType, y_type: StoredType, low: int, high: int, floats: bool = False
) -> tuple[AddConstants, np.ndarray] | None:
    """Returns constants that miss few operand pairs, and the correction of their results; None if all miss many.

    The arguments are those of `find_add_constants`.

    Returns:
        (constants, correction to add to their results, int64 [256, 256] by stored a and b from -128 on).
    """
    a, b, target = _reference_results(a_type, b_type, y_type, low, high, floats)
    fa, fb, ft = _step_pairs(a, b, target)
    best: tuple[int, AddConstants] | None = None
    for ma, mb, shift in itertools.islice(_multipliers(a_type, b_type, y_type), 2 * len(_NEIGHBOURS)):
        sums = fa * ma + fb * mb
        least = np.sort(((ft << shift) - sums)[ft > low])
        most = np.sort((((ft + 1) << shift) - 1 - sums)[ft < high])
        if not (least.size and most.size):
            continue
        candidates = np.concatenate([least[least > most[0]], most[most < least[-1]]])
        if not 0 < candidates.size <= _MAX_CANDIDATES:
            continue
        misses = least.size - np.searchsorted(least, candidates, "right") + np.searchsorted(most, candidates, "left")
        at = int(misses.argmin())
        if best is None or misses[at] < best[0]:
            best = int(misses[at]), AddConstants(ma, mb, int(candidates[at]), shift)
    if best is None:
        return None
    found = best[1]
    total = a * found.ma + b * found.mb + found.c
    correction = target - np.clip(total >> found.shift, low, high)
    return (found, correction) if abs(total).max() < 1 << 31 else None


def _reference_results(
    a_type: StoredType, b_type: StoredType, y_type: StoredType, low: int, high: int, floats: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns all first operands as a column, all second ones as a row, and the rule's results; int64, as stored."""
    q = np.arange(-128, 128, dtype=np.int64)
    (sa, za, oa), (sb, zb, ob), (sy, zy, oy) = a_type, b_type, y_type
    a, b = q[:, None], q[None, :]
    rule = numerics.add_floats if floats else numerics.add_reference
    return a, b, rule(a + oa, b + ob, sa, za, sb, zb, sy, zy, low + oy, high + oy).astype(np.int64) - oy


def _step_pairs(a: np.ndarray, b: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the operand pairs next to a step of the target, and their results: no other pairs can bound c."""
    edge = np.zeros(target.shape, bool)
    for axis in (0, 1):
        step = np.diff(target, axis=axis) != 0
        first, second = [slice(None)] * 2, [slice(None)] * 2
        first[axis], second[axis] = slice(None, -1), slice(1, None)
        edge[tuple(first)] |= step
        edge[tuple(second)] |= step
    edge[[0, -1], [0, -1]] = True  # the least sum and the greatest
    ea, eb = np.nonzero(edge)
    return a[ea, 0], b[0, eb], target[ea, eb]


def _multipliers(a_type: StoredType, b_type: StoredType, y_type: StoredType) -> Iterator[tuple[int, int, int]]:
    """Yields multipliers of both operands and a shift, near the ratios of the scales, most bits first."""
    with np.errstate(over="ignore"):
        ra, rb = (float(np.float32(t[0]) / np.float32(y_type[0])) for t in (a_type, b_type))
    if not (math.isfinite(ra) and math.isfinite(rb)):
        return
    for shift in range(23, 7, -1):
        ma, mb = round(ra * 2**shift), round(rb * 2**shift)
        if (ma + mb + 8) * 128 < 1 << 30:  # neither is below 0, so each fits as well
            yield from ((ma + da, mb + db, shift) for da, db in _NEIGHBOURS)


_NEIGHBOURS = sorted(((a, b) for a in range(-3, 4) for b in range(-3, 4)), key=lambda d: d[0] ** 2 + d[1] ** 2)


def _constant_range(t: np.ndarray, target: np.ndarray, shift: int, low: int, high: int) -> tuple[int, int] | None:
    """Returns the inclusive range of c for which `clamp((t + c) >> shift)` equals `target`; None if it is empty."""
    inner_low = target > low
    inner_high = target < high
    least = int(((target << shift) - t)[inner_low].max(initial=-(1 << 40)))
    most = int((((target + 1) << shift) - 1 - t)[inner_high].min(initial=1 << 40))
    if least > most:
        return None
    if least <= -(1 << 40):
        least = most - 2
    if most >= 1 << 40:
        most = least + 2
    return least, most
