"""Moves that a search tries first, in the order in which they promise most.

Estimates see a layer alone, and add up the work of a group's engines. Whether a layer's first products can begin before
the layer before it is done, or its loads hide behind those products, and how much of a group's work overlaps, only the
cycle simulator knows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from itertools import pairwise

from tilewright.compiler.npu.schedule.decisions import Decisions, schedule_of
from tilewright.compiler.npu.schedule.descent import Descent
from tilewright.compiler.npu.schedule.fusion import Candidate, candidates, cheapest, closer_estimate
from tilewright.compiler.npu.schedule.moves import Move
from tilewright.compiler.npu.schedule.problem import Budget, StepProblem

#: Largest ratio of a measured tiling's estimate to the best estimate.
MARGIN = 1.1
#: Instructions in programs for a tiling of every layer, which are measured with the units before and behind.
_INSTRUCTIONS, _WINDOW = 60_000, 3
#: Ratio of bus time to time of GEMM or VECTOR, below which a step has next to nothing to gain from tensors in ACT.
BUS = 0.5
#: Layers until a tensor's last reader: tensors with fewer are tried first, the largest ones first.
SHORT = 8
#: Share of the time that GEMM or VECTOR works, above which other groups bring next to nothing.
BUSY = 0.95
#: Largest ratio of instructions of new groups to those of the old: instructions take memory too.
LONGER = 1.25
#: Largest ratio of cost after a round of measuring to that before, for another round.
BETTER = 0.9995
#: Scale on estimates, so that slightly over-estimated candidates are still measured.
OPTIMISM = 0.95
#: Largest number of layers in a group.
LONGEST = 8


def tile_moves(search: Descent, least: int, most: int) -> Iterator[Move]:
    """Yields moves to other tilings of layers that run alone. Layers with the smallest estimates choose first.

    Args:
        search: the search, at the schedule whose layers are looked at.
        least, most: number of tilings of a layer: the most where so many of all layers have few instructions.
    """
    problem, now = search.problem, search.now
    schedule = schedule_of(problem, now)
    length = problem.measured(schedule).instructions if most else 0
    if not length:  # the machine stops the whole
        return
    count = min(most, max(least, _INSTRUCTIONS // (_WINDOW * length)))
    options = [
        (layer, search.near.tiles(now, layer, unit))
        for at, unit in zip(now.starts(), schedule.units)
        for layer in unit.tiled(at)
    ]
    estimated = [(layer, found) for layer, found in options if found and found[0][1]]
    for layer, ((_, lowest), *others) in sorted(estimated, key=lambda option: option[1][0][1]):
        for tile, cycles in others[:count]:
            if cycles <= MARGIN * lowest:
                yield Move("tile", layer, tile=tile)


def keep_moves(search: Descent) -> Iterator[Move]:
    """Yields moves that keep tensors in ACT which go through memory, where the bus has much to do."""
    problem = search.problem
    computing, moving = search.busy_cycles()
    if len(problem.layers) < 2 or moving < BUS * computing:
        return
    for stay in sorted(problem.able.values(), key=lambda stay: (stay.last - stay.first >= SHORT, -stay.view.nbytes)):
        if stay.first not in dict(search.now.stays):
            yield Move("keep", stay.first, stay.last + 1 - stay.first)


def group_moves(search: Descent, budget: Budget) -> Iterator[Move]:
    """Yields moves to the groups of the cheapest cut of the step.

    The units of the schedule are measured, each alone. The cheapest cut by measured cycles, and estimates for the rest,
    is measured in its turn, until none of it is an estimate or it brings no gain.

    Args:
        search: the search, at the schedule whose groups are looked at.
        budget: instructions that may be measured.
    """
    problem, now, cost = search.problem, search.now, search.best.cost
    if search.busy_cycles()[0] > BUSY * cost:
        return
    groups = _Groups(problem, now, budget)
    alone = sum(groups.measure(candidate) for candidate in groups.scheduled if budget.left() > 0)
    if budget.left() <= 0:
        return
    scale = OPTIMISM * alone / sum(candidate.estimate for candidate in groups.scheduled)
    path = groups.cheapest_measured(scale, max(0.0, alone - cost) / max(1, len(groups.scheduled) - 1))
    longer, on_chip = (LONGER - 1) * groups.instructions(groups.scheduled), 0
    for old, new in [(groups.scheduled, path), *groups.differences(path)]:
        more = groups.instructions(new) - groups.instructions(old), _on_chip(new) - _on_chip(old)
        if more[0] <= longer and on_chip + more[1] >= 0:  # else tensors on the chip would need room in memory
            before = search.now
            yield Move.regroup("cut" if len(new) > len(old) else "join", new[0].first, [c.unit for c in new])
            if search.now is not before:
                longer, on_chip = longer - more[0], on_chip + more[1]


def _on_chip(path: list[Candidate]) -> int:
    """Returns the bytes of the tensors between fused layers."""
    return sum(tensor.view.nbytes for candidate in path for tensor in candidate.group.between)


class _Groups:
    """Candidates for the groups of a step, with the measurements so far.

    Attributes:
        known, lengths: cost and instructions of measured candidates, by their key.
        scheduled: the candidates that are the units of the schedule.
    """

    def __init__(self, problem: StepProblem, now: Decisions, budget: Budget) -> None:
        self.problem, self.now, self.budget = problem, now, budget
        self.schedule = schedule_of(problem, now)
        self.candidates = candidates(problem, self.schedule.stays, closer_estimate, LONGEST, True)
        numbered = {(c.first, c.unit): c for options in self.candidates for c in options}
        self.units = {*zip(now.starts(), now.units)}
        self.scheduled = [numbered[unit] for unit in zip(now.starts(), now.units)]
        self.known: dict[Hashable, float] = {}
        self.lengths: dict[Hashable, int] = {}

    def tiles(self, candidate: Candidate) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Returns the tilings that the schedule fixes for a candidate's layers, by number behind the first layer.

        A group that the schedule does not have has none.
        """
        group, first = candidate.group, candidate.first
        if group.fused and (first, candidate.unit) not in self.units:
            return ()
        return tuple((n - first, tile) for n, tile in self.now.tiles if n in group.tiled(first))

    def key(self, candidate: Candidate) -> Hashable:
        """Returns a key that is equal for candidates of equal cost."""
        return candidate.key, self.tiles(candidate)

    def measure(self, candidate: Candidate) -> float:
        """Returns the cost of a candidate alone, measured the first time."""
        key = self.key(candidate)
        if key not in self.known:
            found = self.problem.measured_units([candidate.group], self.schedule, candidate.first)
            self.known[key], self.lengths[key] = found
        return self.known[key]

    def instructions(self, path: list[Candidate]) -> int:
        """Returns the number of instructions of measured candidates."""
        return sum(self.lengths[self.key(candidate)] for candidate in path)

    def cheapest_measured(self, scale: float, shared: float) -> list[Candidate]:
        """Measures candidates that may be cheaper until that brings no gain; returns the cheapest measured ones.

        Args:
            scale: factor on estimates.
            shared: cost that a unit shares with its neighbours.
        """

        def expected(of: Candidate) -> float:
            return self.known.get(self.key(of), scale * of.estimate) - shared

        def measured() -> tuple[list[Candidate], float]:
            return cheapest(self.candidates, lambda of: self.known.get(self.key(of), math.inf) - shared)

        path, lowest = measured()
        while self.budget.left() > 0:
            hoped, _ = cheapest(self.candidates, expected)
            unknown = [candidate for candidate in hoped if self.key(candidate) not in self.known]
            for candidate in sorted(unknown, key=lambda c: -c.estimate):
                if self.budget.left() > 0:
                    self.measure(candidate)
            path, found = measured()
            if not unknown or found > BETTER * lowest:
                break
            lowest = found
        return path

    def differences(self, path: list[Candidate]) -> Iterator[tuple[list[Candidate], list[Candidate]]]:
        """Yields the units of the schedule and those of a cut, between boundaries of both, where they differ."""
        both = [{c.first for c in candidates} for candidates in (self.scheduled, path)]
        for first, end in pairwise([*sorted(both[0] & both[1]), len(self.problem.layers)]):
            old, new = ([c for c in units if first <= c.first < end] for units in (self.scheduled, path))
            if [c.unit for c in old] != [c.unit for c in new]:
                yield old, new
