"""Order: that semaphores order every two accesses that matter, in every interleaving of the engines.

Vector clocks: for each engine, how many instructions of every other one are complete, whatever the timing, when its
next instruction starts. The k-th wait of an engine on a semaphore follows at least k signals; where others signal too,
at most all of theirs can be among these. So an order found here holds in every run.

Memory is a set of units (rows, lanes of ACC, bytes of DRAM), each with the last instruction of every engine that wrote
or read it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tilewright.isa.config import SEMAPHORE_LIMIT
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Engine
from tilewright.prove.checker.fields import Array
from tilewright.prove.checker.graph import Finding

ENGINES = len(Engine)


class Order:
    """The order of one NPU step's instructions, followed in program order.

    Args:
        ops: all of the step.
        sizes: units of every memory, by name.
    """

    def __init__(self, ops: Sequence[Op], sizes: dict[str, int]) -> None:
        self.clock = np.zeros((ENGINES, ENGINES), np.int64)
        self.started = [0] * ENGINES
        self.last = {(name, kind): np.zeros((ENGINES, size), np.int32) for name, size in sizes.items() for kind in "rw"}
        self.given: dict[tuple[int, int], list[Array]] = defaultdict(list)
        self.taken: dict[int, list[list[int]]] = defaultdict(lambda: [[] for _ in Engine])
        self.in_all: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.engine, self.index, self.checked = Engine.FETCH, 0, 0
        for op in ops:
            for semaphore in op.signals:
                self.in_all[semaphore][op.instruction.engine] += 1

    def start(self, op: Op, index: int) -> None:
        """Takes the semaphores of an instruction.

        Raises:
            Finding: a wait that no earlier instruction's signal can satisfy.
        """
        engine = op.instruction.engine
        self.engine, self.index = engine, index
        for semaphore in op.waits:
            signals = self.in_all[semaphore]
            given = sum(len(self.given[semaphore, e]) for e in signals)
            if sum(map(len, self.taken[semaphore])) >= given:
                raise Finding(f"instruction {index} ({op.name}) waits for semaphore {semaphore}, which no instruction "
                              "before it gives")  # fmt: skip
            self.taken[semaphore][engine].append(self.started[engine] + 1)
            own = len(self.taken[semaphore][engine])
            for other, times in signals.items():
                least = own - (sum(signals.values()) - times)
                if least > 0:
                    # `other` has given `least` signals at least; program order has them all before this wait.
                    known = self.given[semaphore, other]
                    clock = known[min(least, len(known)) - 1]
                    self.clock[engine] = np.maximum(self.clock[engine], clock)
        self.started[engine] += 1

    def finish(self, op: Op) -> None:
        """Gives the semaphores of an instruction.

        Raises:
            Finding: a semaphore may stand beyond its limit.
        """
        engine = op.instruction.engine
        clock = self.clock[engine].copy()
        clock[engine] = self.started[engine]
        for semaphore in op.signals:
            self.given[semaphore, engine].append(clock)
            others = sum(n for e, n in self.in_all[semaphore].items() if e != engine)
            taken = sum(bisect_right(places, clock[e]) for e, places in enumerate(self.taken[semaphore]))
            if len(self.given[semaphore, engine]) + others - taken > SEMAPHORE_LIMIT:
                raise Finding(f"instruction {self.index} ({op.name}) may take semaphore {semaphore} beyond "
                              f"{SEMAPHORE_LIMIT}")  # fmt: skip

    def complete(self) -> None:
        """Says that the present instruction starts when all earlier ones of its engine are complete, as ROW does."""
        self.clock[self.engine, self.engine] = self.started[self.engine] - 1

    def read(self, memory: str, units: Array) -> None:
        """Checks that the last writes of these units by other engines are complete."""
        self._after(memory, "w", units, "reads")
        self.last[memory, "r"][self.engine, units] = self.started[self.engine]

    def write(self, memory: str, units: Array) -> None:
        """Checks the same of the last writes and reads."""
        self._after(memory, "w", units, "writes")
        self._after(memory, "r", units, "writes")
        self.last[memory, "w"][self.engine, units] = self.started[self.engine]

    def _after(self, memory: str, kind: str, units: Array, verb: str) -> None:
        self.checked += len(units)
        last = self.last[memory, kind]
        for other in range(1, ENGINES):
            if other == self.engine and not (other == Engine.VECTOR and verb == "reads" and memory in ("ACT", "PRM")):
                continue  # instructions of one engine take effect in order, but for what VECTOR reads of its own
            late = last[other, units] > self.clock[self.engine, other]
            if other == self.engine:
                late &= last[other, units] < self.started[other]
            if late.any():
                unit = int(np.asarray(units)[late][0])
                what = "wrote" if kind == "w" else "reads"
                raise Finding(f"instruction {self.index} {verb} {memory} {unit} while {Engine(other).name} may not be "
                              f"done with it (it {what} it before): no semaphore orders them")  # fmt: skip
