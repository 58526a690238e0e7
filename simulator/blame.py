"""Attributes every cycle of a traced run to one cause: a step of the array, or the engine it waited for.

In a cycle in which the array (GEMM) makes no step, something holds its next instruction back. The trace names it: the
signal it waits for belongs to an instruction of another engine. That engine was working at that time, or was itself
waiting for a third one, and so on: the engine that works is the cause. Takes and signals of a semaphore are matched by
number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.isa.codes import SLOTS, CodeMode
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Engine, Memory, queue_of
from tilewright.isa.timing import VECTOR_SIGNAL, gemm_signal
from tilewright.simulator.cycle import Trace

#: Causes of a cycle.
GEMM, WINDOW = "gemm", "window"  # a step of GEMM, of DEPTHWISE
LOAD = "load"  # LOAD moved data (or filled padding)
MEMORY = "memory"  # LOAD was at work but waited: for the first beat, between beats, for a bank
VECTOR = "vector"  # VECTOR at work: post-processing, element-wise layers, copies
STORE = "store"  # STORE at work, up to the response
FETCH = "fetch"  # the instruction had not been fetched
PIPELINE = "pipeline"  # results or signals on their way through pipelines of fixed length
CAUSES = (GEMM, WINDOW, LOAD, MEMORY, VECTOR, STORE, FETCH, PIPELINE)

Segment = tuple[int, int, str, int]  # first and last cycle, cause, instruction


def segments(ops: Sequence[Op], trace: Trace, config: NpuConfig) -> list[Segment]:
    """The causes of all cycles of a run: every cycle is in one segment. `ops`: instructions of the whole program."""
    return _Run(ops, trace, config).segments()


class _Run:
    """One traced run and its chains of waits."""

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
            elif o.name in ("LOAD", "LOAD_PACKED"):
                data = boxes[0] * boxes[1]
                row_bytes = (
                    config.packed_tile_bytes if o.name == "LOAD_PACKED" else Memory(o["target"]).row_bytes(config)
                )
                beats = -(-o["count"] * row_bytes // config.bus_bytes)
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
        """Finds, for every waiting instruction, the signaller whose signal came last."""
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
        """Segments that cover every cycle of the run once."""
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
