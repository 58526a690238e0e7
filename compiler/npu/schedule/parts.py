"""Emission of a layer or a part of it during a search, from records of equal parts where there are some."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.plan import TilePlan
from tilewright.compiler.npu.emit.recording import Recorder, Recording, Tensor
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.compiler.npu.schedule.counting import count_part

#: Datapaths on which a layer's work in a band depends only on the padding above and below, not on its place.
_ALIKE = ("array", "window")
#: Most numbers in kept recordings, about 13 bytes each: a search of hours would fill the memory.
_MOST_NUMBERS = 10_000_000


def emit_part(context: Context, layer: Layer, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
    """Emits a layer or a part of it as `layer.emit` does, from records where that changes nothing."""
    if context.sums is not None:
        layer.emit(context, plan, part)
    elif context.emitter.dry:
        where = tuple(context.on_chip(view) for view in (*layer.reads, layer.output))
        count_part(context, layer, plan, part, (where, _span(layer, part)))
    elif records(context) and layer.recordable:
        tensors = _tensors(context, layer, part)
        blocks = None if part is None else part.blocks
        what = id(layer), plan.tiling, _span(layer, part), blocks
        write_recorded(context, what, tensors, (layer,), lambda recorder: layer.emit(recorder, plan, part))
    else:
        layer.emit(context, plan, part)


def records(context: Context) -> bool:
    """Returns True if emission may replay recordings: only the cycles of its instructions count."""
    wanted = context.timing_only and not context.emitter.dry and context.coder is None and context.sums is None
    return wanted and not isinstance(context, Recorder)


def write_recorded(
    context: Context,
    what: Hashable,
    tensors: list[Tensor],
    layers: tuple[Layer, ...],
    emit: Callable[[Context], object],
) -> None:
    """Replays the recording of an emission, which is made the first time.

    Args:
        context: the emission.
        what: equal for emissions that differ only in the places of tensors and constants.
        tensors: all tensors that are read and written.
        layers: the layers, kept with the recording so that their `id`s stay unique.
        emit: emits the layers into a context.

    Raises:
        ScratchpadFull: the allocations do not fit.
    """
    key = what, tuple(tensor.shape for tensor in tensors), context.accumulators.rows
    plans = context.plans
    known = plans.recorded.get(key)
    if known is None:
        if plans.recorded_numbers > _MOST_NUMBERS:
            plans.recorded.clear()
            plans.recorded_numbers = 0
        recorder = Recorder.of(context, tensors)
        emit(recorder)
        known = plans.recorded[key] = (layers, recorder.recording())
        plans.recorded_numbers += known[1].numbers
    recording: Recording = known[1]
    recording.write(context, tensors)


def _tensors(context: Context, layer: Layer, part: OutputPart | None) -> list[Tensor]:
    """Returns the tensors of a layer, from the place on where a part of it begins."""
    image, first = (0, 0) if part is None else (part.image, part.span[0])
    read = 0 if part is None else layer.input_rows(part.span)[0]
    found = [Tensor.of(context, layer.inputs[0], (image, read))]
    for view in (*layer.reads[1:], layer.output):
        found.append(Tensor.of(context, view, (image if view.n > 1 else 0, first if view.h > 1 else 0)))
    return found


def _span(layer: Layer, part: OutputPart | None) -> Hashable:
    """Returns a key that is equal for spans of rows that are the same work."""
    if part is None:
        return None
    if layer.datapath not in _ALIKE:
        return part.span
    first, end = layer.input_rows(part.span)
    return part.span[1] - part.span[0], max(0, -first), max(0, end - layer.inputs[0].h)
