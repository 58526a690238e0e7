"""Work of layers that is counted once and used again, where nothing is emitted.

The candidates of a search have most of their bands in common: the same layer makes as many rows, by the same plan, from
tensors at the same places. The work it then adds to the engines depends further only on the constants that the
scratchpads hold.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.plan import TilePlan
from tilewright.compiler.npu.emit.scratch import Use
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.isa.instructions import Engine


class _Counted(NamedTuple):
    """The effect of a layer's emission on a context that only counts.

    Attributes:
        layer: the layer, kept so that its `id` stays unique.
        uses: uses of constants in order, for each of `Context.rings`; without a key where no other part uses them.
        work: work by engine.
    """

    layer: Layer
    uses: list[list[Use]]
    work: dict[Engine, int]

    def begins_in(self, context: Context) -> bool:
        """Returns True if the scratchpads hold the same of its constants as when it was counted."""
        for ring, uses in zip(context.rings, self.uses, strict=True):
            seen = set()
            for use in uses:
                if use.key is not None and use.key not in seen and (ring.find(use.key) is None) != (use.rows > 0):
                    return False
                seen.add(use.key)
        return True

    def repeat(self, context: Context) -> None:
        """Changes a context as the emission would."""
        for ring, uses in zip(context.rings, self.uses, strict=True):
            for use in uses:
                if use.rows:  # a key that was put there twice may still be there
                    ring.take(use.rows, None if ring.find(use.key) is not None else use.key, use.align)
        work = context.emitter.work
        for engine, more in self.work.items():
            work[engine] += more


def count_part(context: Context, layer: Layer, plan: TilePlan[Any], part: OutputPart | None, place: Hashable) -> None:
    """Adds the work of `layer.emit` to a context that only counts.

    Args:
        context: the emission.
        layer: the layer.
        plan: its plan.
        part: part of its output, None for all.
        place: equal for parts of as many rows at equivalent places.
    """
    blocks = None if part is None else part.blocks
    alike = blocks is not None and _alike(layer)
    key = id(layer), plan.tiling, place, len(blocks) if blocks is not None and alike else blocks
    known = context.plans.counted.setdefault(key, [])
    found = next((one for one in known if one.begins_in(context)), None)
    if found is not None:
        found.repeat(context)
        return
    emitter = context.emitter
    work = dict(emitter.work)
    with context.noted() as uses:
        layer.emit(context, plan, part)
    if alike:
        uses = [*([use._replace(key=None) for use in own if use.rows] for own in uses[:-1]), uses[-1]]
    more = {engine: now - work[engine] for engine, now in emitter.work.items()}
    known.append(_Counted(layer, uses, more))


def _alike(layer: Layer) -> bool:
    """Returns True if parts of as many channel blocks are the same work: each has its own constants, for one image."""
    return layer.output.n == 1 and layer.equal_blocks
