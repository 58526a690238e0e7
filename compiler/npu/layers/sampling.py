"""Which tiles of a layer are emitted: all, or a few that stand for the others where work is only counted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.layers.tiling import OutputPart, PlaneTiling, boxes
from tilewright.compiler.npu.views import View

T = TypeVar("T")


def sampled(context: Context, parts: Sequence[T], alike: Callable[[T], Hashable]) -> Iterator[T]:
    """The parts of a layer that are to be emitted: all of them. Where nothing is emitted, two of those that are alike:
    the first, which may load what stays for the others, and the next, which counts for all behind it.

    Args:
        alike: gives equal values for parts that are as much work.
    """
    if not context.emitter.dry or context.sums is not None or len(parts) < 3:
        yield from parts
        return
    kinds = [alike(part) for part in parts]
    counts, seen = Counter(kinds), Counter[Hashable]()
    for kind, part in zip(kinds, parts, strict=True):
        seen[kind] += 1
        if seen[kind] == 2 and counts[kind] > 2:
            with context.repeated(counts[kind] - 1):
                yield part
        elif seen[kind] <= 2:
            yield part


def box_tiles(
    context: Context, y: View, tiling: PlaneTiling, part: OutputPart | None, equal: bool = True
) -> Iterator[Box]:
    """The tiles of a part of the output `y` that are to be emitted: channel blocks outside, images and rows inside.

    Args:
        equal: every block of channels is as much work.
    """

    def alike(box: Box) -> Hashable:
        return box.lines, box.columns, box.y0 == 0, box.y1 == y.h, box.x0 == 0, box.x1 == y.w

    planes = [list(plane) for _, plane in itertools.groupby(boxes(y, tiling, part), attrgetter("block"))]
    for plane in sampled(context, planes, lambda plane: plane[0].blocks if equal else plane[0].block):
        yield from sampled(context, plane, alike)
