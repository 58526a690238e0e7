"""What a program must do at least, whatever is computed where and in which order: steps of the array, bytes moved.

For each layer of the program; `simulator.bound` makes cycles of it. docs/simulators.md has the argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.npu.layers.layer import Layer
from compiler.npu.views import View
from isa.config import NpuConfig
from isa.program import ARENA_REGION

_TABLE_BYTES = 256


@dataclass(frozen=True)
class Least:
    """The least one layer must do.

    Attributes:
        steps: of the array.
        reads, writes: bytes.
        after_all: nothing of it can begin before all layers before it are done, and what they read is of no use to
            the layers behind it.
    """

    steps: int = 0
    reads: int = 0
    writes: int = 0
    after_all: bool = False


@dataclass(frozen=True)
class _Wanted:
    """Rows and columns of a tensor that a layer reads (bool)."""

    rows: np.ndarray
    columns: np.ndarray

    @property
    def count(self) -> int:
        return int(self.rows.sum()) * int(self.columns.sum())

    @staticmethod
    def whole(view: View) -> _Wanted:
        return _Wanted(np.ones(view.h, bool), np.ones(view.w, bool))


def least_of(
    config: NpuConfig, steps: Sequence[Sequence[Layer]], on_cpu: Collection[str], sizes: Mapping[str, int]
) -> dict[int, Least]:
    """The least of every layer, by its id.

    Args:
        config: the machine.
        steps: the layers of the NPU's steps, in order.
        on_cpu: buffers that the CPU reads.
        sizes: elements of the model's tensors.
    """
    layers = [layer for step in steps for layer in step]
    made = {layer.output.buffer for layer in layers}
    wanted: dict[str, list[_Wanted]] = {}
    own: dict[int, _Wanted] = {}
    for layer in reversed(layers):
        y = layer.output
        own[id(layer)] = _Wanted.whole(y) if y.buffer in on_cpu else _largest(wanted.get(y.buffer, []), y)
        for view in layer.reads:
            first = view is layer.inputs[0]
            taken = [
                layer.taken(axis, chosen) if first else _same(chosen, size)
                for axis, chosen, size in (
                    (0, own[id(layer)].rows, view.h), (1, own[id(layer)].columns, view.w),
                )
            ]  # fmt: skip
            wanted.setdefault(view.buffer, []).append(_Wanted(*taken))
    found: dict[int, Least] = {}
    seen: set[object] = set()
    single = len(steps) == 1
    for number, layer in enumerate(layers):
        reads = 0
        for key, nbytes in layer.constants():
            reads += 0 if key in seen else nbytes
            seen.add(key)
        for view in layer.reads:
            if view.buffer in made or view.buffer in seen:
                continue
            seen.add(view.buffer)
            elements = view.n * view.c * _largest(wanted[view.buffer], view).count
            reads += min(elements, sizes.get(view.tensor, elements))
        if layer.post.lut is not None and layer.post.lut not in seen:
            seen.add(layer.post.lut)
            reads += _TABLE_BYTES
        y, mine = layer.output, own[id(layer)]
        array = 0 if layer.products is None else layer.products.steps(config, mine.rows, mine.columns)
        writes = y.n * y.c * y.h * y.w if y.buffer in on_cpu else 0
        found[id(layer)] = Least(array, reads, writes, single and _after_all(layers, number))
    return found


def _same(chosen: np.ndarray, size: int) -> np.ndarray:
    """The positions themselves; all of an axis that is broadcast."""
    return chosen if len(chosen) == size else np.ones(size, bool)


def _largest(found: Iterable[_Wanted], view: View) -> _Wanted:
    """What the reader that wants most of a tensor wants: all readers together want no less. Readers that see it in
    another shape count only if they want all of it."""
    best = _Wanted(np.zeros(view.h, bool), np.zeros(view.w, bool))
    for one in found:
        if (len(one.rows), len(one.columns)) != (view.h, view.w):
            if not (one.rows.all() and one.columns.all()):
                continue
            one = _Wanted.whole(view)
        if one.count > best.count:
            best = one
    return best


def _after_all(layers: list[Layer], number: int) -> bool:
    """Whether every result of a layer needs every result of all layers before it, which no layer behind it reads."""
    layer = layers[number]
    y, before, behind = layer.output, layers[:number], layers[number + 1 :]
    if not before or layer.products is None or not layer.dense or y.n * y.h * y.w != 1:
        return False
    x = layer.inputs[0]
    one = np.ones(1, bool)
    if not (layer.taken(0, one).all() and layer.taken(1, one).all()):
        return False
    if {v.buffer for one_behind in behind for v in one_behind.reads} & {
        one_before.output.buffer for one_before in before
    }:
        return False
    needed = {x.buffer}
    for one_before in reversed(before):
        if one_before.output.buffer not in needed:
            return False
        needed |= {v.buffer for v in one_before.reads if v.region == ARENA_REGION}
    return True
