"""Bands: fused layers run a few rows at a time, so that the tensors between them never leave ACT.

For every band of rows of the last output, each layer makes the rows that its readers need and that do not exist yet.
Every tensor in between has a buffer in ACT. A tensor that VECTOR makes for the array has two buffers in turn where
there is room, so that VECTOR makes a band while the array works on the one before. The lines that a later band needs
again (two lines of a 3x3, say) are moved to the start of the buffer by VECTOR, which is cheaper than computing or
loading them twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from operator import mul
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.plan import TilePlan
from tilewright.compiler.npu.emit.scratch import Heap, ScratchpadFull
from tilewright.compiler.npu.emit.tiles import BandTile
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.compiler.npu.schedule.parts import emit_part
from tilewright.compiler.npu.views import View, same_box
from tilewright.isa.instructions import Engine, Source

#: Largest share of ACT's largest gap that buffers may take with second ones.
_ROOM = 0.75


class Between(Struct, frozen=True):
    """A tensor between layers of a group.

    Attributes:
        view: the tensor.
        maker: number of the layer in the group that makes it.
        readers: (number of a layer that reads it, True where its window moves over the tensor; False where row y of the
            output needs row y).
        left, right, fill: columns of padding, and their value.
    """

    view: View
    maker: int
    readers: tuple[tuple[int, bool], ...]
    left: int
    right: int
    fill: int


class LayerGroup(Struct, frozen=True):
    """Layers that run together, or a single layer.

    Attributes:
        layers: the layers in order.
        between: the tensors between them.
        step: rows of the last output per band; 0 for a group by channels (`channels.py`) and for a single layer.
    """

    layers: tuple[Layer, ...]
    between: tuple[Between, ...] = ()
    step: int = 0

    @property
    def fused(self) -> bool:
        """True if there are several layers."""
        return len(self.layers) > 1

    @property
    def by_channel(self) -> bool:
        """True if several layers run some channel blocks at a time."""
        return self.fused and not self.step

    @property
    def apart(self) -> bool:
        """True if each layer runs as it would alone: there is one, or bands are whole images."""
        return not self.fused or self.step == self.layers[-1].output.h

    def tiled(self, first: int) -> range:
        """Returns the numbers of the layers with a tiling of their own, where the group begins with layer `first`.

        In a group by channels, the tilings of the others follow from the first layer's.
        """
        return range(first, first + (len(self.layers) if self.apart else int(self.by_channel)))

    def handed_over(self, tensor: Between) -> bool:
        """Returns True if VECTOR alone makes a tensor between layers that the array reads."""
        readers = (self.layers[r].datapath for r, _ in tensor.readers)
        return self.layers[tensor.maker].datapath == "vector" and any(path != "vector" for path in readers)

    def steps(self, some: Iterable[int]) -> list[int]:
        """Returns the band heights from `some` that fit, in rows of the output; for batches also the full height."""
        last = self.layers[-1].output
        return [step for step in some if step < last.h] + [last.h] * (last.n > 1)


def group_of(
    layers: list[Layer], first: int, count: int, readers: dict[str, list[int]], outside: set[str]
) -> LayerGroup | None:
    """Returns layers first..first+count-1 as a group, None if they cannot run band by band.

    Args:
        layers: the layers of the step.
        first, count: first layer of the group, and number of layers.
        readers: numbers of the layers that read each buffer.
        outside: buffers that are read outside the step.
    """
    part = layers[first : first + count]
    if not all(layer.fusible and layer.output.h > 1 for layer in part):
        return None
    between = []
    for k in range(count - 1):
        tensor = between_of(layers, k, first, count, readers, outside)
        if tensor is None:
            return None
        between.append(tensor)
    return LayerGroup(tuple(part), tuple(between))


def between_of(
    layers: list[Layer], maker: int, first: int, count: int, readers: dict[str, list[int]], outside: set[str]
) -> Between | None:
    """Returns the output of layer `maker` of a group, None if it cannot pass from layer to layer.

    Args:
        layers: the layers of the step.
        maker: number of the layer in the group.
        first, count: first layer of the group, and number of layers.
        readers: numbers of the layers that read each buffer.
        outside: buffers that are read outside the step.
    """
    view = layers[first + maker].output
    if view.buffer not in (v.buffer for v in layers[first + maker + 1].inputs):
        return None
    users = readers.get(view.buffer, [])
    if view.buffer in outside or any(not first + maker < u < first + count for u in users):
        return None
    roles, borders = [], []
    for u in users:
        reader = layers[u]
        again = [v for v in reader.operands if v.buffer == view.buffer]
        if any((v.h, v.w, v.n, v.c, v.offset) != (view.h, view.w, view.n, view.c, view.offset) for v in again):
            return None
        if again:
            roles.append((u - first, False))
        if reader.inputs[0].buffer == view.buffer:
            if not same_box(reader.inputs[0], view):
                return None
            roles.append((u - first, True))
            borders.append(reader.input_border())
    fills = {fill for border, fill in borders if any(border)}
    if len(fills) > 1:
        return None
    left = max((b.left for b, _ in borders), default=0)
    right = max((b.right for b, _ in borders), default=0)
    return Between(view, maker, tuple(roles), left, right, fills.pop() if fills else 0)


class BandRows(Struct, frozen=True):
    """The rows (first, end) of one band.

    Attributes:
        made: rows that each layer makes.
        window: rows, padding included, that the layer's output must then hold for its readers in the group.
    """

    made: tuple[tuple[int, int], ...]
    window: tuple[tuple[int, int], ...]


def band_ranges(group: LayerGroup) -> list[BandRows]:
    """Returns the rows of every band of an image, found from the last layer backwards."""
    height = group.layers[-1].output.h
    starts = range(0, height, group.step)
    made = [[(0, 0)] * len(starts) for _ in group.layers]
    window = [[(0, 0)] * len(starts) for _ in group.layers]
    made[-1] = [(start, min(start + group.step, height)) for start in starts]
    for tensor in reversed(group.between):
        k, h = tensor.maker, tensor.view.h
        wanted = [
            [group.layers[r].input_rows(rows) if through else rows for rows in made[r] if rows[1] > rows[0]]
            for r, through in tensor.readers
        ]
        end = done = 0
        for n in range(len(starts)):
            # A reader that makes nothing in this band still needs the lines with which its next ones begin.
            low = min((rows[0][0] for rows in wanted if rows), default=done)
            now = [rows.pop(0) for rows, (r, _) in zip(wanted, tensor.readers) if made[r][n][1] > made[r][n][0]]
            end = max(end, low, *(high for _, high in now))
            window[k][n] = low, end
            first = max(done, min(low, h))  # a stride may leave lines that nobody reads
            made[k][n] = first, max(first, min(end, h))
            done = made[k][n][1]
    return [BandRows(rows, held) for rows, held in zip(zip(*made), zip(*window), strict=True)]


class LayerWork(Struct):
    """The work of one layer of a group.

    Attributes:
        read_bytes, write_bytes: bytes of memory, of all bands.
        steps: cycles of GEMM, VECTOR, LOAD and STORE in each band, where work is only counted.
        buffers: first rows of the buffers of its output, in turn.
        ahead: ACT rows for its tiles, where two buffers let it be a band ahead of its readers, which use other rows;
            else None.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    steps: list[tuple[int, ...]] = field(default_factory=list)
    buffers: Iterator[int] = field(default_factory=lambda: iter(()))
    ahead: Heap | None = None


def emit_group(context: Context, group: LayerGroup) -> list[LayerWork]:
    """Emits a group that runs band by band; returns the work of each layer.

    Raises:
        ScratchpadFull: the tensors between do not fit, or leave no room for tiles.
    """
    bands = band_ranges(group)
    lines = [max(b.window[t.maker][1] - b.window[t.maker][0] for b in bands) for t in group.between]
    widths = [t.left + t.view.w + t.right for t in group.between]
    planes = [
        _plane(n * w, context.config.act_banks) if group.handed_over(t) else n * w
        for t, n, w in zip(group.between, lines, widths, strict=True)
    ]
    sizes = [t.view.cb * plane for t, plane in zip(group.between, planes, strict=True)]
    copies = [2 if len(bands) > 1 and group.handed_over(tensor) else 1 for tensor in group.between]
    if sum(map(mul, sizes, copies)) > _ROOM * context.heap.largest_gap:
        copies = [1] * len(copies)
    block = context.heap.take_low(sum(map(mul, sizes, copies)))
    apart = context.heap.take_low(context.heap.largest_gap // 2) if max(copies) > 1 else None
    at = block.start
    totals = [LayerWork() for _ in group.layers]
    for tensor, width, plane, size, times in zip(group.between, widths, planes, sizes, copies, strict=True):
        context.bands[tensor.view.buffer] = BandTile(at, 0, tensor.left, width, plane)
        totals[tensor.maker].buffers = itertools.cycle(range(at, at + times * size, size))
        if apart is not None and times > 1:
            totals[tensor.maker].ahead = Heap(apart.size, apart.start)
        at += times * size
    if context.emitter.dry:
        _sample_bands(context, group, bands, totals)
    else:
        for image in range(group.layers[-1].output.n):
            for band in bands:
                _emit_band(context, group, image, band, totals)
    for tensor in group.between:
        del context.bands[tensor.view.buffer]
    block.free()
    if apart is not None:
        apart.free()
    return totals


def _plane(rows: int, banks: int) -> int:
    """Returns the ACT rows from a channel block to the next, chosen so that they begin in consecutive banks.

    The array reads a vector of each block in turn. If all were in one bank, VECTOR, which reads row by row, would
    always wait for it there.
    """
    return rows + (1 - rows) % banks


def _sample_bands(context: Context, group: LayerGroup, bands: list[BandRows], totals: list[LayerWork]) -> None:
    """Counts the work of all bands by emitting at most three: the second stands for the bands up to the last."""
    work = context.emitter.work
    images = group.layers[-1].output.n
    start = dict(work)
    for index, band in enumerate(bands):
        if 2 <= index < len(bands) - 1:
            continue
        before = dict(work)
        _emit_band(context, group, 0, band, totals)
        if index == 1:
            more = max(0, len(bands) - 3)
            for engine in work:
                work[engine] += more * (work[engine] - before[engine])
            for total in totals:
                total.steps += [total.steps[-1]] * more
    for engine in work:
        work[engine] += (images - 1) * (work[engine] - start[engine])
    for total in totals:
        total.steps *= images


def _emit_band(context: Context, group: LayerGroup, image: int, band: BandRows, totals: list[LayerWork]) -> None:
    """Emits one band of all layers, and adds their work to `totals`."""
    emitter = context.emitter
    for k, layer in enumerate(group.layers):
        made = band.made[k]
        total = totals[k]
        read, written = emitter.read_bytes, emitter.write_bytes
        work = dict(emitter.work) if emitter.dry else {}
        if k < len(group.between):
            _shift(context, group.between[k], band.window[k], made, total.buffers)
        if made[1] > made[0]:
            with context.tiles_from(total.ahead):
                emit_part(context, layer, _plan(context, layer, made), OutputPart(image, made))
        if k < len(group.between):
            fill_padding(context, group.between[k], band.window[k], made)
        total.read_bytes += emitter.read_bytes - read
        total.write_bytes += emitter.write_bytes - written
        engines = Engine.GEMM, Engine.VECTOR, Engine.LOAD, Engine.STORE
        if emitter.dry:
            total.steps.append(tuple(emitter.work[e] - work[e] for e in engines))


def _plan(context: Context, layer: Layer, made: tuple[int, int]) -> TilePlan[Any]:
    """Returns the plan for output rows `made` of a layer; pending plane sums are added up if it needs their rows.

    Raises:
        ScratchpadFull: no plan fits.
    """
    try:
        return layer.plan(context, context.heap.largest_gap, made)
    except ScratchpadFull:
        if not context.settle_sums():
            raise
        return layer.plan(context, context.heap.largest_gap, made)


def _shift(
    context: Context, tensor: Between, window: tuple[int, int], made: tuple[int, int], buffers: Iterator[int]
) -> None:
    """Makes the next buffer ready for lines `window`: moves the lines that it keeps to its start.

    Lines `made` are then written by the layer.
    """
    view, low = tensor.view, window[0]
    old = context.bands[view.buffer]
    if made[0] == made[1] and low == old.low:
        return
    new = replace(old, start=next(buffers), low=low)
    context.bands[view.buffer] = new
    columns, plane = new.columns, new.plane
    emitter = context.emitter
    keep = max(low, 0), made[0]
    if keep[1] > keep[0] and (low, new.start) != (
        old.low,
        old.start,
    ):  # towards the start: a step writes behind what it reads
        emitter.vector(
            Source.ACT, old.row(0, keep[0], -tensor.left), new.row(0, keep[0], -tensor.left),
            [((keep[1] - keep[0]) * columns, 1, 0, 1, 0), (view.cb, plane, 0, plane, 0)],
        )  # fmt: skip


def fill_padding(context: Context, tensor: Between, window: tuple[int, int], made: tuple[int, int]) -> None:
    """Fills the padding of a buffer with lines `window`, where lines `made` are new."""
    view, (low, high), new = tensor.view, window, context.bands[tensor.view.buffer]
    columns, plane, emitter = new.columns, new.plane, context.emitter
    blocks = view.first_bytes.cb
    for number, fill in enumerate(view.fills(tensor.fill)):
        block, planes = number * blocks, (blocks, plane)
        for first, end in ((low, min(high, 0)), (max(low, view.h), high)):
            if end > first:
                emitter.fill(new.row(block, first, -tensor.left), [planes], (end - first) * columns, fill)
        first, end = max(made[0], low), min(made[1], high)
        if end > first:
            dims = [(end - first, columns), planes]
            if tensor.left:
                emitter.fill(new.row(block, first, -tensor.left), dims, tensor.left, fill)
            if tensor.right:
                emitter.fill(new.row(block, first, view.w), dims, tensor.right, fill)
