"""Loop nests: levels joined where they walk on evenly, and the rows a nest touches."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tilewright.compiler.npu.emit.hazards import Access

#: (count, stride, stride, ...), one stride per operand.
Loop = tuple[int, ...]
#: More separate spans than this are covered by one hull instead.
_MAX_SPANS = 64


def fold_loops(loops: Sequence[Loop]) -> list[Loop]:
    """Innermost first: drops single iterations and joins levels that walk on evenly."""
    folded: list[Loop] = []
    for loop in loops:
        if loop[0] == 1:
            continue
        if folded:
            inner = folded[-1]
            if all(outer == inner[0] * step for outer, step in zip(loop[1:], inner[1:], strict=True)):
                folded[-1] = (inner[0] * loop[0], *inner[1:])
                continue
        folded.append(loop)
    return folded


def fold_nest(reduce: Sequence[Loop], outer: Sequence[Loop]) -> tuple[tuple[Loop, ...], tuple[Loop, ...], int]:
    """Both parts of a nest folded, and its steps."""
    return _fold_nest(tuple(reduce), tuple(outer))


@functools.lru_cache(maxsize=1 << 14)
def _fold_nest(reduce: tuple[Loop, ...], outer: tuple[Loop, ...]) -> tuple[tuple[Loop, ...], tuple[Loop, ...], int]:
    inner, rest = tuple(fold_loops(reduce)), tuple(fold_loops(outer))
    return inner, rest, math.prod(loop[0] for loop in (*inner, *rest))


def spans(space: str, base: int, dims: Sequence[tuple[int, int]], grain: int = 1) -> list[Access]:
    """The rows a walk touches, in few pieces; of memory some more.

    Args:
        base: first row.
        dims: (count, stride) per loop, any order.
        grain: rows that belong together at each index.
    """
    length, (count, stride), starts = _spans(tuple(dims), grain, space == "memory")
    return [Access(space, base + start, length, count, stride) for start in starts]


@functools.lru_cache(maxsize=1 << 14)
def _spans(dims: tuple[tuple[int, int], ...], grain: int, rough: bool) -> tuple[int, tuple[int, int], list[int]]:
    """Rows of a span, how often it is repeated and at which stride, and where such repetitions begin from the base.
    `rough`: small gaps do not count, and spans are not repeated."""
    base, length = 0, grain
    outer: list[tuple[int, int]] = []
    for count, stride in sorted(((c, s) for c, s in dims if c > 1 and s), key=lambda d: abs(d[1])):
        if stride < 0:
            base += (count - 1) * stride
            stride = -stride
        if stride <= (2 * length + 2 if rough else length) and not outer:
            length += (count - 1) * stride
        else:
            outer.append((count, stride))
    repeated = (1, 0) if rough else max(outer, default=(1, 0))
    if repeated in outer:
        outer.remove(repeated)
    starts = [base]
    for count, stride in outer:
        if len(starts) * count > _MAX_SPANS:
            length += (count - 1) * stride
        else:
            starts = [s + i * stride for i in range(count) for s in starts]
    return length, repeated, starts
