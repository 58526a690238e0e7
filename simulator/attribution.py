"""Where the cycles of a traced run went: every cycle has one cause, every layer a bound and what it lost against it.

The array (GEMM) is what a layer's bound counts, so a cycle in which it makes a step is the array's. In any other cycle
something holds GEMM's next instruction back. The trace tells what: the signal it waits for belongs to an instruction of
another engine, which at that time was working or was itself waiting for a third one, and so on until an engine is found
that works: that one is the cause. Takes and signals of a semaphore are matched by number.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isa.codes import SLOTS, CodeMode
from isa.config import NpuConfig
from isa.encoding import Op
from isa.instructions import Engine, Memory, queue_of
from isa.program import CONSTANT_REGION, Layer
from isa.timing import DEFAULT_MEMORY, VECTOR_SIGNAL, MemoryTiming, gemm_signal
from simulator.bound import memory_cycles, shares
from simulator.cycle import Trace
from simulator.timeline import layer_cycles

#: What a cycle can be.
GEMM, WINDOW = "gemm", "window"  # a step of GEMM, of DEPTHWISE
LOAD = "load"  # LOAD moved data (or filled padding)
MEMORY = "memory"  # LOAD was at work but waited: for the first beat, between beats, for a bank
VECTOR = "vector"  # VECTOR at work: post-processing, element-wise layers, copies
STORE = "store"  # STORE at work, up to the response
FETCH = "fetch"  # the instruction had not been fetched
PIPELINE = "pipeline"  # results or signals on their way through pipelines of fixed length
CAUSES = (GEMM, WINDOW, LOAD, MEMORY, VECTOR, STORE, FETCH, PIPELINE)
_WAITS = CAUSES[2:]

#: What a layer loses, in the order of the reports. They sum up to its cycles minus its bound.
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

Segment = tuple[int, int, str, int]  # first and last cycle, cause, instruction


@dataclass
class LayerLosses:
    """A layer, or several that were fused, and its cycles.

    Attributes:
        layer: with the sums over all fused layers.
        members: the layers themselves.
        cycles: from the end of the layer before to its own end (`simulator.timeline.layer_cycles`).
        compute, memory: the steps of the array and the beats of the bus that no schedule can avoid.
        bound: its part of the fewest cycles the program can take (`simulator.bound`), at least `compute`.
        spent: cycles per cause, of any layer's instructions.
        steps: its own steps of the array, wherever they fell.
        losses: cycles per entry of `LOSSES`; they sum up to `cycles - bound`.
        fill: what `losses["fill"]` waited for, per cause.
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


def fused_layers(layers: Iterable[Layer]) -> list[list[Layer]]:
    """The NPU layers, those that were fused together: they share the instructions counted with the first one."""
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
    """One layer that stands for all of a group."""
    names = [layer.name for layer in group]
    sums = {
        key: sum(getattr(layer, key) for layer in group)
        for key in ("macs", "read_bytes", "write_bytes", "minimum_bytes", "minimum_writes", "minimum_steps")
    }
    return replace(group[0], name=" + ".join(names), op="+".join(layer.op for layer in group), **sums)


def attribute(
    ops: Sequence[Op],
    layers: Iterable[Layer],
    traces: Sequence[Trace],
    config: NpuConfig,
    constants: bytes = b"",
    memory: MemoryTiming = DEFAULT_MEMORY,
) -> list[LayerLosses]:
    """The NPU layers in the order of the program, with what they lost.

    Args:
        ops: the program's instructions.
        layers: `Program.layers`.
        traces: of the runs of the program's NPU steps, in order.
        constants: the program's constant region; tells the products of fused depthwise layers from the others.
        memory: of the runs.
    """
    groups = {group[0].first: group for group in fused_layers(layers)}
    fused = [fused_row(group) for group in groups.values()]
    bounds = dict(zip(groups, shares(fused, config, memory)))
    products = _window_products(ops, config, constants)
    rows = []
    for trace in traces:
        table = _Table(segments(ops, trace, config))
        end = 0
        for found in layer_cycles(fused, [trace]):
            interval = end, end + found.cycles
            first = found.layer.first
            rows.append(_account(groups[first], found.layer, bounds[first], interval, table, config, memory, products))
            end += found.cycles
    return rows


def segments(ops: Sequence[Op], trace: Trace, config: NpuConfig) -> list[Segment]:
    """The causes of all cycles of a run: every cycle is in one segment. `ops` are those of the whole program."""
    return _Run(ops, trace, config).segments()


def _account(
    members: list[Layer],
    layer: Layer,
    bound: int,
    interval: tuple[int, int],
    table: _Table,
    config: NpuConfig,
    memory: MemoryTiming,
    products: np.ndarray,
) -> LayerLosses:
    """The books of one layer; `interval`: the cycle before its first and its last."""
    compute = layer.minimum_steps
    row = LayerLosses(layer, members, interval[1] - interval[0], compute, memory_cycles([layer], config, memory), bound)
    pcs = layer.first, layer.first + layer.count
    row.spent = {cause: table.count(cause, *interval) for cause in CAUSES}
    gemm, window = table.own(GEMM, *pcs), table.own(WINDOW, *pcs)
    row.steps = sum(b - a + 1 for a, b in (*gemm, *window))
    window_steps = sum(b - a + 1 for a, b in window)
    of_window = compute if not gemm else _window_steps(members, products, pcs)
    losses = dict.fromkeys(LOSSES, 0)
    losses["window"] = window_steps - of_window if window else 0
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
    """Segments of a whole program, to be counted by cause and cycles or found by instruction."""

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


class _Run:
    """One traced run: who waited for whom."""

    def __init__(self, ops: Sequence[Op], trace: Trace, config: NpuConfig) -> None:
        count = len(trace.times)
        self.ops = ops[trace.first : trace.first + count]
        self.first, self.cycles, self.depth = trace.first, trace.cycles, config.queue_depth
        times = trace.times.astype(np.int64)
        self.dispatched, self.waited, self.started, self.ended = times.T.tolist()
        self.last = list(self.ended)  # last cycle in which the engine could take no other instruction
        self.steps = [0] * count
        self.before = [-1] * count  # the run instruction before in the same engine
        self.ahead = [-1] * count  # the run instruction before in the same queue
        queues: dict[Engine, list[int]] = {e: [] for e in Engine}
        self.queue = [queues[queue_of(o.instruction.engine, config)] for o in self.ops]
        self.place = [0] * count  # in its queue
        self.runs: dict[Engine, list[int]] = {e: [] for e in Engine}
        self._walk(config)
        self._match()

    def _walk(self, config: NpuConfig) -> None:
        loops = [1] * config.gemm_loops
        boxes, pad = [1, 1], [0, 0, 0, 0]
        ahead: dict[Engine, int] = {}
        for i, o in enumerate(self.ops):
            engine = o.instruction.engine
            self.place[i] = len(self.queue[i])
            self.queue[i].append(i)
            if o.name == "GEMM_LOOP":
                loops[o["level"]] = o["count"]
            elif o.name == "LOAD_DIM":
                boxes[o["level"]] = o["count"]
            elif o.name == "LOAD_PAD":
                pad = [o[side] for side in ("left", "right", "top", "bottom")]
            if o.instruction.configures or engine == Engine.FETCH or not self.started[i]:
                continue
            self.before[i] = self.runs[engine][-1] if self.runs[engine] else -1
            self.runs[engine].append(i)
            holder = queue_of(engine, config)
            self.ahead[i] = ahead.get(holder, -1)
            ahead[holder] = i
            if o.name in ("GEMM", "DEPTHWISE"):
                self.steps[i] = math.prod(loops)
            elif o.name == "LOAD":
                data = boxes[0] * boxes[1]
                beats = -(-o["count"] * Memory(o["target"]).row_bytes(config) // config.bus_bytes)
                lines = (boxes[0] + pad[2] + pad[3]) * boxes[1]
                self.steps[i] = data * beats + lines * (pad[0] + pad[1] + o["count"]) - data * o["count"]
            elif o.name == "LOAD_CODED":
                table = o["mode"] == CodeMode.TABLE
                rounds = SLOTS if table else o["count"] * config.tile_bytes // config.weight_codes
                self.steps[i] = max(rounds, o["beats"])
            if engine == Engine.GEMM:
                self.last[i] = self.ended[i] - gemm_signal(config)
            elif engine == Engine.VECTOR:
                self.last[i] = self.ended[i] - VECTOR_SIGNAL

    def _match(self) -> None:
        """For every instruction that waits, the signaller whose signal came last."""
        given: dict[int, list[tuple[int, int]]] = {}
        taken: dict[int, list[tuple[int, int]]] = {}
        for engine in list(Engine)[1:]:
            for i in self.runs[engine]:
                for s in self.ops[i].signals:
                    given.setdefault(s, []).append((self.ended[i], i))
                for s in self.ops[i].waits:
                    taken.setdefault(s, []).append((self.started[i], i))
        self.signaller: dict[int, int] = {}
        for s, takes in taken.items():
            for (_, i), (_, j) in zip(sorted(takes), sorted(given.get(s, []))):
                if i not in self.signaller or self.ended[j] > self.ended[self.signaller[i]]:
                    self.signaller[i] = j

    def segments(self) -> list[Segment]:
        """Every cycle of the run once."""
        out: list[Segment] = []
        at = 1
        for i in self.runs[Engine.GEMM]:
            if self.started[i] >= at:
                out += self._blame("start", i, at, self.started[i])
            name = self.ops[i].name
            cause = PIPELINE if name == "GEMM_SYNC" else WINDOW if name == "DEPTHWISE" else GEMM
            out.append((self.started[i] + 1, self.last[i], cause, self.first + i))
            at = self.last[i] + 1
        if at <= self.cycles:
            ran = [i for engine in list(Engine)[1:] for i in self.runs[engine]]
            if ran:
                out += self._blame("end", max(ran, key=self.ended.__getitem__), at, self.cycles)
            else:
                out.append((at, self.cycles, FETCH, self.first))
        return out

    def _blame(self, what: str, i: int, a: int, b: int) -> list[Segment]:
        """Causes of cycles a..b, in all of which instruction `i` had not been dispatched, not started or not ended."""
        out: list[Segment] = []
        todo = [(what, i, a, b)]
        follow = {"dispatch": self._dispatch, "start": self._start, "end": self._end}
        while todo:
            what, i, a, b = todo.pop()
            for kind, j, x, y in follow[what](i, a, b):
                x, y = max(x, a), min(y, b)
                if x > y:
                    continue
                if kind in follow:
                    todo.append((kind, j, x, y))
                else:
                    out.append((x, y, kind, self.first + j))
        return out

    def _end(self, i: int, a: int, b: int) -> list[tuple[str, int, int, int]]:
        started, last, ended = self.started[i], self.last[i], self.ended[i]
        engine = self.ops[i].instruction.engine
        parts = [("start", i, a, started)]
        if engine == Engine.LOAD:
            before = self.ended[self.before[i]] if self.before[i] >= 0 else 0
            data = max(started, before, ended - self.steps[i] - 1)
            if before > started:
                parts.append(("end", self.before[i], started + 1, before))
            parts += [(MEMORY, i, max(started, before) + 1, data), (LOAD, i, data + 1, ended)]
        elif engine == Engine.STORE:
            parts.append((STORE, i, started + 1, ended))
        else:
            parts += [(VECTOR if engine == Engine.VECTOR else PIPELINE, i, started + 1, last)]
            parts.append((PIPELINE, i, last + 1, ended))
        return [*parts, (PIPELINE, i, ended + 1, b)]

    def _start(self, i: int, a: int, b: int) -> list[tuple[str, int, int, int]]:
        before, dispatched, started = self.before[i], self.dispatched[i], self.started[i]
        free = self.last[before] if before >= 0 else 0
        if self.waited[i] and i in self.signaller:
            j = self.signaller[i]
            free = min(free, self.waited[i] - 1)
            cause, given = ("end", j), self.ended[j]
        else:
            cause, given = ("dispatch", i), dispatched
            ahead = self.ahead[i]
            if ahead >= 0 and self.started[ahead] > dispatched:  # until then it is not at the head of its queue
                cause, given = ("start", ahead), self.started[ahead]
        parts = [(*cause, free + 1, given), (PIPELINE, i, max(free, given) + 1, max(b, started))]
        if before >= 0:
            parts.append(("end", before, a, free))
        elif a <= free:
            parts.append(("dispatch", i, a, free))
        return parts

    def _dispatch(self, i: int, a: int, b: int) -> list[tuple[str, int, int, int]]:
        earlier = self.dispatched[i - 1] if i else 0
        parts = [("dispatch", i - 1, a, earlier)] if i else []
        popped = 0
        queue = self.queue[i]
        if self.place[i] >= self.depth:  # there is room when the one `depth` places before has left
            head = queue[self.place[i] - self.depth]
            place = self.place[head]
            while place > 0 and self.ops[queue[place]].instruction.configures:
                place -= 1
            k = queue[place]
            popped = self.started[k] + self.place[head] - place
            if self.dispatched[i] <= popped + 2 and self.started[k] > earlier:
                parts.append(("start", k, earlier + 1, self.started[k]))
                parts.append((PIPELINE, i, self.started[k] + 1, b))
                return parts
        return [*parts, (FETCH, i, earlier + 1, b)]


def _window_products(ops: Sequence[Op], config: NpuConfig, constants: bytes) -> np.ndarray:
    """MACs of every DEPTHWISE instruction, lanes and slots without weights left out; 0 for the others."""
    products = np.zeros(len(ops), np.int64)
    if not any(o.name == "DEPTHWISE" for o in ops):
        return products
    tiles: dict[int, int] = {}  # WGT row -> offset in the constants
    useful: dict[int, int] = {-1: 0}

    def taps(row: int) -> int:
        at = tiles.get(row, -1)
        if at not in useful:
            tile = np.frombuffer(constants, np.int8, config.tile_bytes, at).reshape(config.block_out, -1)
            used = tile[: config.dw_lanes] != 0
            useful[at] = int(used.any(0).sum() * used.any(1).sum())
        return useful[at]

    loops, box = _reset(config)
    for i, o in enumerate(ops):
        if o.name == "END":
            loops, box = _reset(config)
        elif o.name == "GEMM_LOOP":
            loops[o["level"]] = o["count"], o["wgt_stride"]
        elif o.name == "LOAD_DIM":
            box[o["level"]] = o["count"], o["row_stride"], o["mem_stride"]
        elif o.name == "LOAD" and o["target"] == Memory.WGT:
            for z, y, x in np.ndindex(box[1][0], box[0][0], o["count"]):
                row = o["row"] + z * box[1][1] + y * box[0][1] + x
                at = o["offset"] + z * box[1][2] + y * box[0][2] + x * config.tile_bytes
                inside = o["region"] == CONSTANT_REGION and 0 <= at <= len(constants) - config.tile_bytes
                tiles[row] = at if inside else -1
        elif o.name == "DEPTHWISE":
            emissions = math.prod(
                max(0, (loops[level][0] - 1 - o[f"start{level}"]) // o[f"step{level}"] + 1) for level in (0, 1)
            )
            rows = [o["wgt"]]
            for count, stride in loops[2:]:
                rows = [r + n * stride for r in rows for n in range(count)] if stride else rows * count
            products[i] = emissions * sum(map(taps, rows))
    return products


def _reset(config: NpuConfig) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Loops (count, stride in WGT) and box of LOAD (count, row stride, bytes) as a run finds them."""
    return [(1, 0)] * config.gemm_loops, [(1, 0, 0)] * 2


def _window_steps(members: Sequence[Layer], products: np.ndarray, pcs: tuple[int, int]) -> int:
    """Least steps of the depthwise ones among fused layers: the members whose MACs are nearest to what the window
    computed."""
    computed = int(products[slice(*pcs)].sum())
    sums = {0: 0}
    for layer in members[:12]:
        sums |= {macs + layer.macs: steps + layer.minimum_steps for macs, steps in sums.items()}
    return sums[min(sums, key=lambda macs: abs(macs - computed))]
