"""Which tensors stay in ACT between layers instead of going through memory."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.npu.layers import ConvLayer, DepthwiseLayer, Layer, MaxPoolLayer
from compiler.npu.views import View
from isa.config import NpuConfig
from isa.program import ARENA_REGION


@dataclass
class Stay:
    """A resident tensor: border (top, bottom, left, right), fill value, rows, the layers it lives through, and where
    it lies."""

    view: View
    border: tuple[int, int, int, int]
    fill: int
    rows: int
    first: int
    last: int
    start: int = 0


def resident_candidates(layers: list[Layer], outside: set[str]) -> list[Stay]:
    """Tensors made and used within one NPU step, which could stay in ACT; not placed yet.

    Args:
        layers: of the step, in order.
        outside: buffers that others read.
    """
    candidates = []
    made: dict[str, int] = {}
    writers: dict[str, int] = {}
    for i, layer in enumerate(layers):
        made.setdefault(layer.output.buffer, i)
        writers[layer.output.buffer] = writers.get(layer.output.buffer, 0) + 1
    for buffer, first in made.items():
        view = layers[first].output
        uses = [(i, layer, v) for i, layer in enumerate(layers) for v in reads_of(layer) if v.buffer == buffer]
        if buffer in outside or writers[buffer] > 1 or not uses or view.region != ARENA_REGION:
            continue
        if any(not _same_box(v, view) for _, _, v in uses):
            continue
        need = [border_of(layer, view) for _, layer, v in uses if v is layer.inputs[0] or v == layer.inputs[0]]
        fills = {fill for border, fill in need if any(border)}
        if len(fills) > 1:
            continue
        border = tuple(max((b[i] for b, _ in need), default=0) for i in range(4))
        fill = fills.pop() if fills else 0
        rows = view.n * view.cb * (view.h + border[0] + border[1]) * (view.w + border[2] + border[3])
        candidates.append(Stay(view, border, fill, rows, first, max(i for i, _, _ in uses)))  # type: ignore[arg-type]
    return candidates


def choose_residents(config: NpuConfig, layers: list[Layer], outside: set[str], share: float = 0.6) -> list[Stay]:
    """Tensors that fit into ACT together.

    Args:
        layers, outside: as for `resident_candidates`.
        share: of ACT rows that residents may take at any time; the rest is for tiles of what is not resident.
    """
    candidates = resident_candidates(layers, outside)
    limit = int(config.act_rows * share)
    chosen: list[Stay] = []
    load = [0] * len(layers)
    # What saves most traffic per row and layer of stay first: short lives, then small ones.
    for stay in sorted(candidates, key=lambda s: (s.last - s.first, s.rows)):
        span = range(stay.first, stay.last + 1)
        if stay.rows <= limit and all(load[i] + stay.rows <= limit for i in span):
            chosen.append(stay)
            for i in span:
                load[i] += stay.rows
    return place_residents(config.act_rows, chosen)


def place_residents(rows: int, stays: list[Stay]) -> list[Stay]:
    """Gives every stay its rows, from the top of ACT down, apart from those that live at the same time or right after
    (fused layers overlap); what finds no room is dropped."""
    placed: list[Stay] = []
    for stay in sorted(stays, key=lambda s: (-s.rows, s.first)):
        end = rows
        near = [p for p in placed if p.first <= stay.last + 1 and p.last >= stay.first - 1]
        for other in sorted(near, key=lambda p: -(p.start + p.rows)):
            if other.start + other.rows <= end - stay.rows:
                break
            end = min(end, other.start)
        if end - stay.rows >= rows // 8:
            stay.start = end - stay.rows
            placed.append(stay)
    return sorted(placed, key=lambda s: s.first)


def reads_of(layer: Layer) -> list[View]:
    return [*layer.inputs, *([layer.post.add.other] if layer.post.add is not None else [])]


def _same_box(a: View, b: View) -> bool:
    return (a.n, a.c, a.h, a.w, a.sn, a.sc, a.sh, a.offset) == (b.n, b.c, b.h, b.w, b.sn, b.sc, b.sh, b.offset)


def border_of(layer: Layer, view: View) -> tuple[tuple[int, int, int, int], int]:
    """What a reader wants around its input, and with which value."""
    if isinstance(layer, ConvLayer):
        sizes = []
        for axis, size in ((0, view.h), (1, view.w)):
            out = (layer.output.h, layer.output.w)[axis]
            low = max(p.pad[axis] for p in layer.phases)
            high = max(
                (p.outputs(axis, out) - 1) * p.stride[axis] - p.pad[axis] + p.extent[axis] - size for p in layer.phases
            )
            # Phases of unequal length are walked together to the longest one.
            longest = max(p.outputs(axis, out) for p in layer.phases)
            high = max(
                high,
                max((longest - 1) * p.stride[axis] - p.pad[axis] + p.extent[axis] - size for p in layer.phases),
            )
            sizes.append((max(0, low), max(0, high)))
        return (sizes[0][0], sizes[0][1], sizes[1][0], sizes[1][1]), layer.fill
    if isinstance(layer, DepthwiseLayer | MaxPoolLayer):
        kernel = layer.weights.shape[1:] if isinstance(layer, DepthwiseLayer) else layer.kernel
        fill = layer.fill if isinstance(layer, DepthwiseLayer) else -128
        sizes = []
        for axis, size in ((0, view.h), (1, view.w)):
            out = (layer.output.h, layer.output.w)[axis]
            extent = (out - 1) * layer.stride[axis] + (kernel[axis] - 1) * layer.dilation[axis] + 1
            sizes.append((layer.pad[axis], max(0, extent - layer.pad[axis] - size)))
        return (sizes[0][0], sizes[0][1], sizes[1][0], sizes[1][1]), fill
    return (0, 0, 0, 0), 0
