"""Residency: the choice of tensors that stay in ACT between layers instead of going through memory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Border
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.views import View, fills_memory, same_box
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION


class Stay(Struct):
    """A tensor that stays in ACT between layers.

    Attributes:
        view: the tensor.
        border, fill: padding around it, and its value.
        rows: rows of ACT, border included.
        first, last: numbers of the layer that makes it, and of the last one that reads it.
        start: first row of ACT.
    """

    view: View
    border: Border
    fill: int
    rows: int
    first: int
    last: int
    start: int = 0

    def place_key(self, numbers: Mapping[str, int]) -> tuple[Any, ...]:
        """Returns a key that is equal for tensors that lie in ACT alike, where buffers have these numbers.

        Of the padding's value only counts whether it is 0.
        """
        planes = self.view.n * self.view.cb
        return numbers.get(self.view.buffer), self.border, bool(self.fill), self.rows, self.start, planes

    def settle(self, context: Context) -> None:
        """Reserves its rows of ACT.

        Raises:
            ScratchpadFull: some of them are in use.
        """
        context.make_resident(self.view, self.border, self.start)

    def fill_border(self, context: Context) -> None:
        """Emits the fills of its border."""
        context.fill_border(self.view, self.border, self.fill)


def resident_candidates(layers: list[Layer], outside: set[str]) -> list[Stay]:
    """Returns the tensors made and used within one NPU step that could stay in ACT, without a place.

    Args:
        layers: the layers of the step in order.
        outside: buffers that are read outside the step.
    """
    candidates = []
    writers: dict[str, list[tuple[int, View]]] = {}
    readers: dict[str, list[tuple[int, Layer, View]]] = {}
    for i, layer in enumerate(layers):
        writers.setdefault(layer.output.buffer, []).append((i, layer.output))
        for v in layer.reads:
            readers.setdefault(v.buffer, []).append((i, layer, v))
    for buffer, made in writers.items():
        uses = readers.get(buffer, [])
        view = _whole([v for _, v in made], [v for _, _, v in uses])
        if buffer in outside or not uses or view is None or view.region != ARENA_REGION:
            continue
        need = [layer.input_border() for _, layer, v in uses if v == layer.inputs[0]]
        fills = {fill for border, fill in need if any(border)}
        same = len(made) == 1 and all(same_box(v, view) for _, _, v in uses)
        if len(fills) > 1 or (fills and not same):  # a border lies around the planes of one view
            continue
        border = functools.reduce(Border.union, (border for border, _ in need), Border())
        fill = fills.pop() if fills else 0
        rows = view.n * view.cb * (view.h + border.top + border.bottom) * (view.w + border.left + border.right)
        candidates.append(Stay(view, border, fill, rows, made[0][0], max(i for i, _, _ in uses)))
    return candidates


def _whole(made: list[View], read: list[View]) -> View | None:
    """Returns the first of a buffer's views that has the vectors of all, which are made; None if there is none."""
    views = [*made, *read]
    if len(made) == 1 and all(same_box(v, made[0]) for v in views):
        return made[0]
    block = made[0].block
    if any(v.block != block or any(at % block for at in (v.offset, v.sn, v.sc, v.sh)) for v in views):
        return None
    size = sum(v.nbytes for v in made)
    inside = all(v.address(v.n - 1, v.cb - 1, v.h - 1, v.w - 1) + block <= size for v in views)
    return next((v for v in views if inside and fills_memory(v) and v.nbytes == size), None)


def choose_residents(config: NpuConfig, layers: list[Layer], outside: set[str], share: float = 0.6) -> list[Stay]:
    """Returns tensors that fit into ACT together, with their places.

    Args:
        config: the machine.
        layers, outside: as for `resident_candidates`.
        share: share of ACT rows that they may take at any time; the rest is for tiles.
    """
    candidates = resident_candidates(layers, outside)
    limit = int(config.act_rows * share)
    chosen: list[Stay] = []
    load = [0] * len(layers)
    # Stays that save most traffic per row and layer come first: short lives, then small tensors.
    for stay in sorted(candidates, key=lambda s: (s.last - s.first, s.rows)):
        span = range(stay.first, stay.last + 1)
        if stay.rows <= limit and all(load[i] + stay.rows <= limit for i in span):
            chosen.append(stay)
            for i in span:
                load[i] += stay.rows
    return place_residents(config.act_rows, chosen)


def outside_groups(stays: Iterable[Stay], groups: Iterable[LayerGroup]) -> list[Stay]:
    """Returns the stays without tensors that pass between the layers of a group."""
    between = {tensor.view.buffer for group in groups for tensor in group.between}
    return [stay for stay in stays if stay.view.buffer not in between]


def place_residents(rows: int, stays: list[Stay], spare: int = 8) -> list[Stay]:
    """Returns the stays that find room, each with its first row, placed from the top of ACT down.

    Tensors whose lives meet or follow each other directly get different rows, because layers of a fused group overlap.

    Args:
        rows: rows of ACT.
        stays: the stays, which are changed.
        spare: divisor of ACT: 1 / `spare` of it stays free.
    """
    placed: list[Stay] = []
    for stay in sorted(stays, key=lambda s: (-s.rows, s.first)):
        end = rows
        near = [p for p in placed if p.first <= stay.last + 1 and p.last >= stay.first - 1]
        for other in sorted(near, key=lambda p: -(p.start + p.rows)):
            if other.start + other.rows <= end - stay.rows:
                break
            end = min(end, other.start)
        if end - stay.rows >= rows // spare:
            stay.start = end - stay.rows
            placed.append(stay)
    return sorted(placed, key=lambda s: s.first)
