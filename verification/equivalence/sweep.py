"""Finds bits of two netlists that are equal for all inputs: candidates by random values, proved by a solver.

The nodes of the first netlist are there before the second is made. Each new node of the second is looked for among
those of the first that had the same value for all inputs tried; where the solver says that the two can never differ,
the old one takes its place. So what comes behind it is small, and mostly the same node without being asked for.
"""

from __future__ import annotations

from random import Random

from verification.mutants.gates import Gates
from verification.mutants.solver import Solver

#: Random inputs at first, and those made of each input for which the solver found a difference.
CASES, NEAR = 2048, 4
#: Such inputs that are collected before all values are computed anew.
BATCH = 128
#: Old nodes that a new one is compared with at most.
CANDIDATES = 4


class Sweep(Gates):
    """Gates with the values of their nodes for some inputs."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.draw = Random(seed)
        self.cases = CASES
        self.values = [0]  # by node, a bit for each case
        self.old = 0
        self.asked = 0
        self._by_value: dict[int, list[int]] = {}
        self._found: list[dict[int, bool]] = []
        self._solver = Solver(self)

    def value(self, literal: int) -> int:
        """Returns the value of a literal, a bit for each case. Variables are 1 in half of the first ones."""
        every = (1 << self.cases) - 1
        for inputs in self.inputs[len(self.values) :]:
            if inputs is None:
                self.values.append(self.draw.getrandbits(self.cases))
            else:
                a, b = (self.values[i >> 1] ^ (every if i & 1 else 0) for i in inputs)
                self.values.append(a & b)
        return self.values[literal >> 1] ^ (every if literal & 1 else 0)

    def freeze(self) -> None:
        """Fixes the nodes so far as those that new ones are compared with."""
        self.old = len(self.inputs)
        self.value(0)
        self._index()

    def _index(self) -> None:
        self._by_value = {}
        for node in range(self.old):
            self._by_value.setdefault(self._key(2 * node)[0], []).append(node)

    def _key(self, literal: int) -> tuple[int, int]:
        """Returns the value of a literal or of its complement, whichever is 0 in the first case, and which it is."""
        value = self.value(literal)
        return (self.value(literal ^ 1), 1) if value & 1 else (value, 0)

    def known(self, literal: int) -> int:
        """Returns an old literal that is equal for all inputs, or the literal itself."""
        node = literal >> 1
        if node < self.old:
            return literal
        value, inverted = self._key(literal)
        candidates = [2 * c ^ self._key(2 * c)[1] ^ inverted for c in self._by_value.get(value, ())]
        for _ in range(CANDIDATES):
            if not candidates:
                break
            if (found := self._difference(literal, candidates[0])) is None:
                return candidates[0]
            values = self.evaluate((literal, *candidates), lambda node: int(found.get(node, False)), 1)
            candidates = [c for c in candidates if values(c) == values(literal)]
        if len(self._found) >= BATCH:
            self._recompute()
        return literal

    def equal(self, a: int, b: int) -> bool:
        """Returns whether two literals are equal for all inputs."""
        return a == b or (self.value(a) == self.value(b) and self._difference(a, b) is None)

    def _difference(self, a: int, b: int) -> dict[int, bool] | None:
        """Variables for which two literals differ, None if there are none."""
        self.asked += 1
        answer = self._solver.apart([(a, b)])
        if answer is None:
            return None
        found = {node: answer(2 * node) for node in self.cone((a, b)) if node and self.inputs[node] is None}
        self._found.append(found)
        return found

    def _recompute(self) -> None:
        """Computes the values of all nodes for inputs that told two nodes apart, and for some near them."""
        self.value(0)
        more = NEAR * len(self._found)
        new = [0] * len(self.inputs)
        every = (1 << more) - 1
        for node, inputs in enumerate(self.inputs):
            if inputs is not None:
                a, b = (new[i >> 1] ^ (every if i & 1 else 0) for i in inputs)
                new[node] = a & b
            elif node:
                for n, found in enumerate(self._found):
                    bits = (1 << NEAR) - 1 if found.get(node, self.draw.getrandbits(1)) else 0
                    flips = self.draw.getrandbits(NEAR) & self.draw.getrandbits(NEAR) & self.draw.getrandbits(NEAR)
                    new[node] |= (bits ^ flips & ~1) << NEAR * n
        self.values = [old << more | value for old, value in zip(self.values, new, strict=True)]
        self.cases += more
        self._found = []
        self._index()
