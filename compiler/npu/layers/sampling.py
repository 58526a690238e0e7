"""Sampling of tiles: all are emitted, or where work is only counted, a few that represent the others."""

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
    """Yields the parts of a layer to emit.

    These are all, unless work is only counted. Then they are two of each kind: the first, which may load constants for
    the others, and the second, which counts for all behind it.

    Args:
        context: the emission.
        parts: the parts in order.
        alike: returns equal values for parts that are the same work.
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
    """Yields the tiles of a part of the output `y` to emit: channel blocks outside, images and rows inside.

    Args:
        context: the emission.
        y: the output.
        tiling: size of a tile.
        part: the part, None for all of the output.
        equal: True if every channel block is the same work.
    """

    def alike(box: Box) -> Hashable:
        return box.lines, box.columns, box.y0 == 0, box.y1 == y.h, box.x0 == 0, box.x1 == y.w

    planes = [list(plane) for _, plane in itertools.groupby(boxes(y, tiling, part), attrgetter("block"))]
    for plane in sampled(context, planes, lambda plane: plane[0].blocks if equal else plane[0].block):
        yield from sampled(context, plane, alike)
