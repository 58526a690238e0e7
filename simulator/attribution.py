"""Attributes the cycles of a traced run to layers: each has a bound and, by cause, the cycles lost against it.

A layer's bound counts steps of the array (GEMM), so a cycle in which it makes a step is the array's;
`tilewright.simulator.blame` names the cause of the others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct, field

from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.program import Layer
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.simulator.blame import (
    CAUSES,
    FETCH,
    GEMM,
    LOAD,
    MEMORY,
    PIPELINE,
    STORE,
    VECTOR,
    WINDOW,
    Segment,
    segments,
)
from tilewright.simulator.bound import memory_cycles, shares
from tilewright.simulator.cycle import Trace
from tilewright.simulator.timeline import layer_cycles
from tilewright.simulator.window_products import window_products, window_steps

_WAITS = CAUSES[2:]

#: Losses of a layer, in the order of the reports. They sum up to its cycles minus its bound.
LOSSES = {
    "padding": "array steps on lanes, channels and pixels that are not the model's",
    "window": "steps of depthwise layers beyond one for each block of outputs",
    "traffic": "waiting for bytes read or written more often than unavoidable",
    "load": "waiting for LOAD otherwise",
    "vector": "waiting for VECTOR (post-processing, element-wise layers)",
    "store": "waiting for STORE",
    "fill": "the array empty before the layer's first step or after its last one",
    "fetch": "waiting for instructions",
    "pipeline": "signals and results in pipelines",
    "overlap": "steps of other layers in this one's time, less its own steps (or transfers) in theirs",
}


class LayerLosses(Struct):
    """A layer, or several that were fused, and its cycles.

    Attributes:
        layer: the layer, with the sums over all fused layers.
        members: the layers themselves.
        cycles: cycles from the end of the layer before to its own end (`tilewright.simulator.timeline.layer_cycles`).
        compute, memory: the steps of the array and the beats of the bus that no schedule can avoid.
        bound: its part of the fewest cycles the program can take (`tilewright.simulator.bound`), at least `compute`.
        spent: cycles per cause, of any layer's instructions.
        steps: its own steps of the array, wherever they fell.
        losses: cycles per entry of `LOSSES`; they sum up to `cycles - bound`.
        fill: cycles of `losses["fill"]` per cause of the wait.
    """

    layer: Layer
    members: list[Layer]
    cycles: int
    compute: int
    memory: int
    bound: int
    spent: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    fill: dict[str, int] = field(default_factory=dict)

    @property
    def utilization(self) -> float:
        return self.bound / self.cycles if self.cycles else 0.0


class Attributed:
    """Sums over the layers of a run.

    Attributes:
        rows: the layers.
    """

    rows: list[LayerLosses]

    @property
    def bound(self) -> int:
        """The fewest cycles of the layers by any schedule."""
        return sum(row.bound for row in self.rows)

    @property
    def losses(self) -> dict[str, int]:
        """Cycles above the bound, by cause."""
        return {key: sum(row.losses[key] for row in self.rows) for key in LOSSES}


def fused_layers(layers: Iterable[Layer]) -> list[list[Layer]]:
    """Groups the NPU layers that were fused: they share the instructions counted with the first one."""
    groups: list[list[Layer]] = []
    for layer in layers:
        if layer.where != "npu":
            continue
        if layer.count == 0 and groups and layer.first == groups[-1][0].first + groups[-1][0].count:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return groups


def fused_row(group: Sequence[Layer]) -> Layer:
    """One layer that stands for a group: its names joined, its counts summed."""
    names = [layer.name for layer in group]
    sums = {
        key: sum(getattr(layer, key) for layer in group)
        for key in ("macs", "read_bytes", "write_bytes", "minimum_bytes", "minimum_writes", "minimum_steps")
    }
    return replace(group[0], name=" + ".join(names), op="+".join(layer.op for layer in group), **sums)


def bounds_of(groups: Sequence[Sequence[Layer]], config: NpuConfig, memory: MemoryTiming) -> list[int]:
    """The part of each group in the bound. A joined row cannot express which of its layers wait for all before them."""
    parts = iter(shares([layer for group in groups for layer in group], config, memory))
    return [sum(next(parts) for _ in group) for group in groups]


def attribute(
    ops: Sequence[Op],
    layers: Iterable[Layer],
    traces: Sequence[Trace],
    config: NpuConfig,
    constants: bytes = b"",
    memory: MemoryTiming = DEFAULT_MEMORY,
) -> list[LayerLosses]:
    """The NPU layers in the order of the program, with their lost cycles by cause.

    Args:
        ops: the program's instructions.
        layers: `Program.layers`.
        traces: traces of the runs of the program's NPU steps, in order.
        constants: the program's constant region; distinguishes the products of fused depthwise layers from the others.
        memory: memory timing of the runs.
    """
    groups = {group[0].first: group for group in fused_layers(layers)}
    fused = [fused_row(group) for group in groups.values()]
    bounds = dict(zip(groups, bounds_of(list(groups.values()), config, memory)))
    products = window_products(ops, config, constants)
    rows = []
    for trace in traces:
        table = _Table(segments(ops, trace, config))
        end = 0
        for found in layer_cycles(fused, [trace]):
            interval = end, end + found.cycles
            first = found.layer.first
            rows.append(
                _layer_losses(groups[first], found.layer, bounds[first], interval, table, config, memory, products)
            )
            end += found.cycles
    return rows


def _layer_losses(
    members: list[Layer],
    layer: Layer,
    bound: int,
    interval: tuple[int, int],
    table: _Table,
    config: NpuConfig,
    memory: MemoryTiming,
    products: np.ndarray,
) -> LayerLosses:
    """The losses of one layer; `interval`: the cycle before its first and its last."""
    compute = layer.minimum_steps
    row = LayerLosses(layer, members, interval[1] - interval[0], compute, memory_cycles([layer], config, memory), bound)
    pcs = layer.first, layer.first + layer.count
    row.spent = {cause: table.count(cause, *interval) for cause in CAUSES}
    gemm, window = table.own(GEMM, *pcs), table.own(WINDOW, *pcs)
    row.steps = sum(b - a + 1 for a, b in (*gemm, *window))
    in_window = sum(b - a + 1 for a, b in window)
    of_window = compute if not gemm else window_steps(members, products, pcs)
    losses = dict.fromkeys(LOSSES, 0)
    losses["window"] = in_window - of_window if window else 0
    losses["padding"] = row.steps - compute - losses["window"]
    losses["overlap"] = row.spent[GEMM] + row.spent[WINDOW] - row.steps
    waits = dict.fromkeys(_WAITS, 0)
    fill = {cause: row.spent[cause] for cause in _WAITS}
    if gemm or window:
        inside = [(a, b) for a, b in (*gemm, *window) if b > interval[0] and a <= interval[1]]
        if inside:
            first, last = max(min(inside)[0] - 1, interval[0]), min(max(b for _, b in inside), interval[1])
            waits = {cause: table.count(cause, first, last) for cause in _WAITS}
            fill = {cause: row.spent[cause] - waits[cause] for cause in _WAITS}
    else:
        waits, fill = fill, waits
    # What memory must move anyway is no loss: it is taken from the waiting for it, then from what hid it.
    unavoidable = row.bound - compute
    for place, key in (
        (waits, LOAD), (waits, MEMORY), (fill, LOAD), (fill, MEMORY), (waits, STORE), (fill, STORE), (losses, "window"),
        (losses, "padding"), *((p, k) for k in (VECTOR, FETCH, PIPELINE) for p in (fill, waits)),
    ):  # fmt: skip
        part = max(0, min(unavoidable, place[key]))
        place[key] -= part
        unavoidable -= part
    losses["overlap"] -= unavoidable
    moved = layer.read_bytes * memory.read_interval + layer.write_bytes * memory.write_interval
    extra = max(0, math.ceil(moved / config.bus_bytes) - row.bound)
    for place, key in ((waits, LOAD), (fill, LOAD), (waits, STORE), (fill, STORE)):
        part = min(extra, place[key])
        place[key] -= part
        extra -= part
        losses["traffic"] += part
    losses["load"] = waits[LOAD] + waits[MEMORY]
    for cause in (VECTOR, STORE, FETCH, PIPELINE):
        losses[cause] = waits[cause]
    losses["fill"] = sum(fill.values())
    row.losses, row.fill = losses, fill
    assert sum(losses.values()) == row.cycles - row.bound
    return row


class _Table:
    """Segments of a whole program, counted by cause and cycles or found by instruction."""

    def __init__(self, segments: list[Segment]) -> None:
        self._knots: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._steps: dict[str, list[tuple[int, ...]]] = {}  # instruction, first, last
        for cause in CAUSES:
            mine = sorted(s for s in segments if s[2] == cause)
            edges = np.array([(a - 1, b) for a, b, _, _ in mine], np.float64).reshape(-1, 2)
            total = np.cumsum(edges[:, 1] - edges[:, 0])
            counts = np.stack([np.concatenate(([0.0], total[:-1])) if len(mine) else total, total], axis=1)
            self._knots[cause] = edges.reshape(-1), counts.reshape(-1)
            if cause in (GEMM, WINDOW):
                self._steps[cause] = sorted((pc, a, b) for a, b, _, pc in mine)

    def count(self, cause: str, before: int, last: int) -> int:
        """Cycles of `cause` after cycle `before` up to `last`."""
        cycles, counts = self._knots[cause]
        if not len(cycles) or last <= before:
            return 0
        low, high = np.interp((before, last), cycles, counts)
        return round(float(high - low))

    def own(self, cause: str, first: int, end: int) -> list[tuple[int, int]]:
        """First and last cycle of the array steps of instructions first..end-1."""
        steps = self._steps[cause]
        return [(a, b) for _, a, b in steps[bisect_left(steps, (first,)) : bisect_left(steps, (end,))]]
