"""Lower bounds on the work of a program, in any schedule and tiling: steps of the array, bytes that are moved.

There is one for each layer of the program; `tilewright.simulator.bound` makes cycles of them. docs/simulators.md has
the argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION

_TABLE_BYTES = 256


class LowerBound(Struct, frozen=True):
    """The least work of one layer.

    Attributes:
        steps: steps of the array.
        reads, writes: bytes of external memory.
        after_all: True if the layer can begin only when all layers before it are done, and no later layer uses
            tensors that they read.
    """

    steps: int = 0
    reads: int = 0
    writes: int = 0
    after_all: bool = False


class _Demand(Struct, frozen=True):
    """Rows and columns of a view that a layer reads: bool [h] and bool [w]."""

    view: View
    rows: np.ndarray
    columns: np.ndarray

    @property
    def count(self) -> int:
        """The number of pixels that are read."""
        return int(self.rows.sum()) * int(self.columns.sum())

    @staticmethod
    def whole(view: View) -> _Demand:
        """Returns the demand for all rows and columns of a view."""
        return _Demand(view, np.ones(view.h, bool), np.ones(view.w, bool))

    def as_view(self, other: View) -> tuple[_Demand, range] | None:
        """Returns the same rows and columns as another view of the buffer counts them, and its blocks that are read.

        The result is None if the strides or shapes of both views do not match.
        """
        own = self.view
        if own.n != other.n:
            return None
        at = own.within(other)
        if at is not None:
            rows, columns = np.zeros(other.h, bool), np.zeros(other.w, bool)
            rows[at[2] : at[2] + own.h] = self.rows
            columns[at[3] : at[3] + own.w] = self.columns
            return _Demand(other, rows, columns), range(at[1], at[1] + own.cb)
        at = other.within(own)
        if at is None:
            return None
        rows, columns = self.rows[at[2] : at[2] + other.h], self.columns[at[3] : at[3] + other.w]
        return _Demand(other, rows, columns), range(other.cb)


def lower_bounds(
    config: NpuConfig, steps: Sequence[Sequence[Layer]], on_cpu: Collection[str], sizes: Mapping[str, int]
) -> dict[int, LowerBound]:
    """Returns the lower bound of every layer, by `id` of the layer.

    Args:
        config: the machine.
        steps: the layers of the NPU's steps, in order.
        on_cpu: names of buffers that the CPU reads.
        sizes: bytes of the model's tensors, by name.
    """
    layers = [layer for step in steps for layer in step]
    made = {layer.output.buffer for layer in layers}
    on_cpu = {*on_cpu, *(name for layer in layers for name in layer.extra_reads)}  # in memory, too
    demands: dict[str, list[_Demand]] = {}
    output_demand: dict[int, _Demand] = {}
    for layer in reversed(layers):
        y = layer.output
        output_demand[id(layer)] = (
            _Demand.whole(y) if y.buffer in on_cpu else _largest_demand(demands.get(y.buffer, []), y)
        )
        for view in layer.reads:
            first = view is layer.inputs[0]
            taken = [
                layer.taken(axis, chosen) if first else _positions(chosen, size)
                for axis, chosen, size in (
                    (0, output_demand[id(layer)].rows, view.h), (1, output_demand[id(layer)].columns, view.w),
                )
            ]  # fmt: skip
            demands.setdefault(view.buffer, []).append(_Demand(view, *taken))
    found: dict[int, LowerBound] = {}
    seen: set[object] = set()
    single = len(steps) == 1
    for number, layer in enumerate(layers):
        reads = 0
        for key, nbytes in layer.constants():
            # Weights may be coded, and what they take then depends on how often each occurs.
            reads += 0 if key in seen or config.weight_codes else nbytes
            seen.add(key)
        for view in layer.reads:
            if view.buffer in made or view.buffer in seen:
                continue
            seen.add(view.buffer)
            nbytes = view.n * view.c * view.bytes * _largest_demand(demands[view.buffer], view).count
            reads += min(nbytes, sizes.get(view.tensor, nbytes))
        if layer.post.lut is not None and layer.post.lut not in seen:
            seen.add(layer.post.lut)
            reads += _TABLE_BYTES
        y, demand = layer.output, output_demand[id(layer)]
        array = 0 if layer.products is None else layer.products.steps(config, demand.rows, demand.columns)
        writes = y.n * y.c * y.h * y.w * y.bytes if y.buffer in on_cpu else 0
        found[id(layer)] = LowerBound(array, reads, writes, single and _after_all(layers, number))
    return found


def _positions(chosen: np.ndarray, size: int) -> np.ndarray:
    """Returns the chosen positions of an axis, bool; all `size` of them where the axis is broadcast."""
    return chosen if len(chosen) == size else np.ones(size, bool)


def _largest_demand(found: Iterable[_Demand], view: View) -> _Demand:
    """Returns the rows and columns of the reader that needs most of a tensor: all readers together need no less.

    Each channel block has its own largest reader, and the smallest of those counts. Readers that see the tensor in
    another shape count only if they need all of it.
    """
    best = [_Demand(view, np.zeros(view.h, bool), np.zeros(view.w, bool))] * view.cb
    for one in found:
        seen = one.as_view(view)
        if seen is None and one.view.nbytes >= view.nbytes and one.rows.all() and one.columns.all():
            seen = _Demand.whole(view), range(view.cb)
        if seen is None:
            continue
        part, blocks = seen
        for block in blocks:
            if part.count > best[block].count:
                best[block] = part
    return min(best, key=lambda one: one.count)


def _after_all(layers: list[Layer], number: int) -> bool:
    """Returns True if every result of a layer depends on all results before it, and later layers read none of those."""
    layer = layers[number]
    y, before, behind = layer.output, layers[:number], layers[number + 1 :]
    if not before or layer.products is None or not layer.dense or y.n * y.h * y.w != 1:
        return False
    x = layer.inputs[0]
    one = np.ones(1, bool)
    if not (layer.taken(0, one).all() and layer.taken(1, one).all()):
        return False
    if any(earlier.output.buffer == x.buffer and earlier.output.c > x.c for earlier in before):
        return False  # the layer reads a part of the channels
    if {v.buffer for later in behind for v in later.reads} & {earlier.output.buffer for earlier in before}:
        return False
    needed = {x.buffer}
    for earlier in reversed(before):
        if earlier.output.buffer not in needed:
            return False
        needed |= {v.buffer for v in earlier.reads if v.region == ARENA_REGION}
    return True
