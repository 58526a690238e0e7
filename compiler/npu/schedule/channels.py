"""Groups by channels: layers that run together a few channel blocks at a time.

The first layer, on the array, makes its output chunk by chunk of channel blocks. As soon as a chunk is done, layers
that work on each channel by itself (depthwise convolutions, means over planes) run on it, so that ACT holds no more
than two chunks of the tensors between. A matrix product at the end adds each chunk's products to sums that stay in ACC:
the weights of a fully connected layer, which exceed WGT and hardly occupy the array, are loaded while the array is busy
with the layer before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.plan import PlanTable, TilePlan, plan_of
from tilewright.compiler.npu.emit.recording import Tensor
from tilewright.compiler.npu.emit.scratch import Allocation, Heap, ScratchpadFull
from tilewright.compiler.npu.emit.tiles import SOMEWHERE, BandTile
from tilewright.compiler.npu.layers.conv import ConvEmission, ConvLayer, finishing
from tilewright.compiler.npu.layers.conv_tiling import ConvTiling
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.compiler.npu.schedule.bands import Between, LayerGroup, LayerWork, between_of, fill_padding
from tilewright.compiler.npu.schedule.parts import emit_part, records, write_recorded
from tilewright.isa.config import NpuConfig

#: Largest number of layers in such a group.
LONGEST = 4
#: Divisor of ACC: the sums of the last layer take at most this part.
_SUMS = 2
#: Chunks of a tensor between that are in ACT at a time: one is made while the one before is read.
_CHUNKS = 2


def channel_group(
    config: NpuConfig, layers: list[Layer], first: int, count: int, readers: dict[str, list[int]], outside: set[str]
) -> LayerGroup | None:
    """Returns layers first..first+count-1 as a group that runs by channels, None if they cannot.

    Args:
        config: the machine.
        layers: the layers of the step.
        first, count: first layer of the group, and number of layers.
        readers: numbers of the layers that read each buffer.
        outside: buffers that are read outside the step.
    """
    part = layers[first : first + count]
    maker, last = part[0], part[-1]
    if not _on_array(maker) or len(part) < 2:
        return None
    if not all(layer.by_channel for layer in part[1:-1]) or not (last.by_channel or _on_array(last)):
        return None
    if any(layer.output.bytes > 1 or layer.output.n != maker.output.n for layer in part):
        return None
    if not last.by_channel and (any(last.input_border()[0]) or _sum_rows(config, last) > config.acc_rows // _SUMS):
        return None
    between = [between_of(layers, number, first, count, readers, outside) for number in range(count - 1)]
    if any(tensor is None or tensor.readers != ((tensor.maker + 1, True),) for tensor in between):
        return None
    return LayerGroup(tuple(part), tuple(tensor for tensor in between if tensor is not None))


def hides_weights(config: NpuConfig, group: LayerGroup) -> bool:
    """Returns True if a group by channels ends with more weights than WGT holds: alone, that layer would wait."""
    last = group.layers[-1]
    if not isinstance(last, ConvLayer):
        return False
    return _product_tiles(config, last) * last.inputs[0].cb > config.wgt_tiles


def _on_array(layer: Layer) -> bool:
    """Returns True for a convolution of one phase with constant weights."""
    return isinstance(layer, ConvLayer) and layer.fusible


def _sums_of(config: NpuConfig, group: LayerGroup) -> int:
    """Returns the rows of ACC in which the last layer adds up the products of all chunks."""
    return 0 if group.layers[-1].by_channel else _sum_rows(config, group.layers[-1])


def _sum_rows(config: NpuConfig, layer: Layer) -> int:
    """Returns the rows of ACC that the sums of an image take."""
    assert isinstance(layer, ConvLayer)
    s = layer.shape(config, (0, layer.output.h))
    return int(s.q[0] * s.q[1] * s.rows(s.y.cb))


class _Passing(Struct):
    """A tensor between layers: ACT holds two chunks of it at a time, with padding around each plane.

    Attributes:
        tensor: the tensor.
        low, high: rows (first, end) of a plane, padding included.
        chunk: channel blocks of a chunk.
        start: first row of ACT.
    """

    tensor: Between
    low: int
    high: int
    chunk: int
    start: int = 0

    @staticmethod
    def of(group: LayerGroup, tensor: Between, chunk: int) -> _Passing:
        """Returns a tensor of a group, with the padding that its reader needs."""
        ((reader, _),) = tensor.readers
        low, high = group.layers[reader].input_rows((0, group.layers[reader].output.h))
        return _Passing(tensor, min(low, 0), max(high, tensor.view.h), chunk)

    @property
    def columns(self) -> int:
        """The columns of a plane, padding included."""
        return self.tensor.left + self.tensor.view.w + self.tensor.right

    @property
    def plane(self) -> int:
        """The ACT rows of a plane, padding included."""
        return (self.high - self.low) * self.columns

    @property
    def rows(self) -> int:
        """ACT rows of both chunks."""
        return _CHUNKS * self.chunk * self.plane

    def turn(self, context: Context, block: int) -> None:
        """Makes the chunk from channel block `block` on the one that is written or read."""
        slot = block // self.chunk % _CHUNKS
        start = self.start + (slot * self.chunk - block) * self.plane
        at = BandTile(start, self.low, self.tensor.left, self.columns, self.plane)
        context.bands[self.tensor.view.buffer] = at

    def fill(self, context: Context) -> None:
        """Fills the padding of both chunks, which no layer overwrites."""
        self.turn(context, 0)
        view = self.tensor.view
        both = replace(self.tensor, view=replace(view, c=_CHUNKS * self.chunk * view.block))
        fill_padding(context, both, (self.low, self.high), (0, view.h))


class ChannelPlan(NamedTuple):
    """The plans with which a group runs by channels.

    Attributes:
        first: plan of the first layer.
        behind: plans of the layers behind it that work by channel.
    """

    first: TilePlan[ConvTiling]
    behind: list[TilePlan[Any]]

    @property
    def chunk(self) -> int:
        """The channel blocks of a chunk."""
        return self.first.tiling.blocks


class _Emission:
    """Emits a group by channels.

    Args:
        passing: the tensors between layers.
        rooms: ACT rows for the tiles of the layers behind the first that work by channel.
        acc: first row of ACC for the sums of the last layer.
    """

    def __init__(
        self,
        context: Context,
        group: LayerGroup,
        plan: ChannelPlan,
        passing: list[_Passing],
        rooms: list[Heap],
        acc: int,
    ) -> None:
        self.context, self.plan, self.passing, self.rooms, self.acc = context, plan, passing, rooms, acc
        self.maker, *self.behind = group.layers
        self.totals = [LayerWork() for _ in group.layers]
        blocks = range(self.maker.output.cb)
        self.chunks = [blocks[at : at + plan.chunk] for at in blocks[:: plan.chunk]]
        # Chunks by which each layer lags behind the first: one more for every layer on the array, which then need not
        # wait for VECTOR's part of the chunk.
        self.lags = [*itertools.accumulate(int(layer.datapath != "vector") for layer in self.behind)]

    def run(self) -> None:
        """Emits all images."""
        for tensor in self.passing:
            tensor.fill(self.context)
        for image in range(self.maker.output.n):
            self._image(image)

    def _image(self, image: int) -> None:
        """Emits one image, chunk by chunk."""
        last, whole = self.behind[-1], lambda layer: OutputPart(image, (0, layer.output.h))
        assert isinstance(self.maker, ConvLayer)
        sums: ConvEmission | None = None
        if isinstance(last, ConvLayer):
            tiling = ConvTiling(last.output.h, last.output.w, last.output.cb, self.plan.chunk, True, True)
            sums = ConvEmission(self.context, last, tiling, whole(last))
        with self.context.pools(self.plan.first.pools):
            made = ConvEmission(self.context, self.maker, self.plan.first.tiling, whole(self.maker)).run()
            for turn in range(len(self.chunks) + self.lags[-1]):
                with self._counted(0):
                    if turn < len(self.chunks):
                        self.passing[0].turn(self.context, self.chunks[turn].start)
                    next(made, None)
                for number, lag in enumerate(self.lags):
                    if lag <= turn < len(self.chunks) + lag:
                        self._make(number, image, self.chunks[turn - lag], sums)
        if sums is not None:
            with self._counted(len(self.behind)):
                sums.finish(self.acc)

    def _make(self, number: int, image: int, chunk: range, sums: ConvEmission | None) -> None:
        """Emits a chunk of one of the layers behind the first."""
        layer = self.behind[number]
        for tensor in self.passing[number : number + 2]:
            tensor.turn(self.context, chunk.start)
        with self._counted(number + 1):
            if layer.by_channel:
                with self.context.tiles_from(self.rooms[number]):
                    part = OutputPart(image, (0, layer.output.h), chunk)
                    emit_part(self.context, layer, self.plan.behind[number], part)
            elif sums is not None:
                sums.add_channels(chunk, self.acc)

    @contextmanager
    def _counted(self, number: int) -> Iterator[None]:
        """Adds the bytes that are read and written inside to those of layer `number`."""
        emitter, total = self.context.emitter, self.totals[number]
        read, written = emitter.read_bytes, emitter.write_bytes
        yield
        total.read_bytes += emitter.read_bytes - read
        total.write_bytes += emitter.write_bytes - written


def emit_channels(context: Context, group: LayerGroup) -> list[LayerWork]:
    """Emits a group by channels; returns the bytes of each layer, 0 where a recording is replayed.

    Raises:
        ScratchpadFull: no chunk fits.
    """
    sums = _sums_of(context.config, group)
    context.accumulators.reserve(sums)
    try:
        plan = _choose(context, group)
    finally:
        context.accumulators.give_back(sums)
    if not (records(context) and all(layer.recordable for layer in group.layers)):
        return _emit(context, group, plan, sums)
    between = {tensor.view.buffer for tensor in group.between}
    views = [view for layer in group.layers for view in (*layer.reads, layer.output) if view.buffer not in between]
    what = tuple(map(id, group.layers)), plan.first.tiling, tuple(tiles.tiling for tiles in plan.behind)
    tensors = [Tensor.of(context, view, (0, 0)) for view in views]
    write_recorded(context, what, tensors, group.layers, lambda recorder: _emit(recorder, group, plan, sums))
    return [LayerWork() for _ in group.layers]


def _emit(context: Context, group: LayerGroup, plan: ChannelPlan, sums: int) -> list[LayerWork]:
    """Emits a group by channels by a plan, with `sums` rows of ACC for the last layer; returns its work."""
    acc = context.accumulators.reserve(sums)
    taken: list[Allocation] = []
    try:
        passing = [_Passing.of(group, tensor, plan.chunk) for tensor in group.between]
        for through in passing:
            taken.append(context.heap.take_low(through.rows))
            through.start = taken[-1].start
        rooms = []
        for tiles in plan.behind:
            taken.append(context.heap.take_low(sum(tiles.pools)))
            rooms.append(Heap(taken[-1].size, taken[-1].start))
        emission = _Emission(context, group, plan, passing, rooms, acc)
        emission.run()
    finally:
        for tensor in group.between:
            context.bands.pop(tensor.view.buffer, None)
        for room in taken:
            room.free()
        context.accumulators.give_back(sums)
    return emission.totals


class ChannelPlans(NamedTuple):
    """The plans of a group that runs by channels.

    Attributes:
        first: plans of the first layer.
        behind: plans of the layers behind it that work by channel, by the channel blocks of a chunk.
    """

    first: PlanTable[ConvTiling]
    behind: dict[int, list[TilePlan[Any]]]


def channel_plans(context: Context, group: LayerGroup) -> ChannelPlans:
    """Returns all plans that fit."""
    maker, *behind = group.layers
    assert isinstance(maker, ConvLayer)
    budget = context.heap.largest_gap
    between = [tensor.view.buffer for tensor in group.between]
    context.bands |= dict.fromkeys(between, SOMEWHERE)
    try:
        alone = [
            [*layer.plans(context, budget, (0, layer.output.h), every=True)] for layer in behind if layer.by_channel
        ]
        last = 0 if behind[-1].by_channel else _product_tiles(context.config, behind[-1])
        end = 0 if behind[-1].by_channel else _rows_at_end(context, behind[-1])
        plans = maker.plans(context, budget, (0, maker.output.h), every=True)
    finally:
        for buffer in between:
            del context.bands[buffer]

    whole = (plans.column("lines") == maker.output.h) & (plans.column("columns") == maker.output.w)
    plans = plans.where(whole | ~plans.column("bands_outer"))
    plans = plans.where(last * plans.column("blocks") <= context.config.wgt_tiles // 2)
    found, fits = {}, np.zeros(len(plans), bool)
    for blocks in sorted({*plans.column("blocks").tolist()}):
        others = _within(alone, blocks)
        if others is None:
            continue
        passing = sum(_Passing.of(group, tensor, blocks).rows for tensor in group.between)
        beside = passing + sum(sum(other.pools) for other in others)
        fits |= (plans.column("blocks") == blocks) & (beside + np.maximum(plans.rows, end) <= budget)
        found[blocks] = others
    return ChannelPlans(plans.where(fits), found)


def _rows_at_end(context: Context, layer: Layer) -> int:
    """Returns the ACT rows in which the last layer makes its output, when those of the first one are free again."""
    assert isinstance(layer, ConvLayer)
    return sum(finishing(context, layer)[1])


def _within(alone: Sequence[Sequence[TilePlan[Any]]], chunk: int) -> list[TilePlan[Any]] | None:
    """Returns, for each layer, the best plan with no more channel blocks than a chunk; None if a layer has none."""
    found = []
    for plans in alone:
        fitting = [plan for plan in plans if plan.tiling.blocks <= chunk]
        if not fitting:
            return None
        found.append(min(fitting, key=attrgetter("cycles")))
    return found


def _choose(context: Context, group: LayerGroup) -> ChannelPlan:
    """Returns the plan to run: with the first layer's wanted tiling if it fits, else the one of fewest cycles.

    If possible, the weights of two chunks fit into WGT.
    """
    wanted = context.tiles.get(id(group.layers[0]))
    on_chip = (context.on_chip(view) for layer in group.layers for view in (*layer.reads, layer.output))
    free = context.accumulators.rows, context.heap.largest_gap
    key = (*(layer.plan_key for layer in group.layers), *on_chip, *free, wanted)
    found: ChannelPlan | None = context.plans.by_channel.get(key)
    if found is None:
        found = context.plans.by_channel[key] = _chosen(context, group, wanted)
    return found


def _chosen(context: Context, group: LayerGroup, wanted: tuple[int, ...] | None) -> ChannelPlan:
    """Returns the result of `_choose` from all plans.

    Raises:
        ScratchpadFull: no plan fits.
    """
    first, behind = channel_plans(context, group)
    if not len(first):
        raise ScratchpadFull(f"{group.layers[0].name}: no chunk of channels fits")
    plan = None if wanted is None else plan_of(first, wanted)
    if plan is None:
        two_chunks = 2 * _weight_tiles(context.config, group) * first.column("blocks")
        plan = first[int(np.lexsort((first.cycles, two_chunks > context.config.wgt_tiles))[0])]
    return ChannelPlan(plan, behind[plan.tiling.blocks])


def _weight_tiles(config: NpuConfig, group: LayerGroup) -> int:
    """Returns the weight tiles of a channel block in the group's matrix products."""
    first, *_, last = group.layers
    assert isinstance(first, ConvLayer)
    s = first.shape(config)
    tiles = int(-(-s.rows(s.unit) * s.taps * s.in_blocks // s.unit))
    return tiles + (0 if last.by_channel else _product_tiles(config, last))


def _product_tiles(config: NpuConfig, layer: Layer) -> int:
    """Returns the largest number of weight tiles that the last layer has for a channel block of its input."""
    assert isinstance(layer, ConvLayer)
    s = layer.shape(config)
    return int(s.rows(s.y.cb) * s.taps * (1 + s.rest_sets))
