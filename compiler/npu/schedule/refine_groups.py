"""Groups refined by exact cycles, where estimates may be wrong.

A group's estimate adds up the work of its engines; only the cycle simulator knows how much of it overlaps. So the units
of the cheapest cut are measured, each alone. The cheapest cut by measured cycles, and estimates for the rest, is
measured in its turn, until none of it is an estimate or it brings no gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.schedule.comparison import compared
from tilewright.compiler.npu.schedule.fusion import Candidate, candidates, cheapest, closer_estimate
from tilewright.compiler.npu.schedule.problem import GAIN, Costed, Schedule, StepProblem

#: Largest number of layers in a group.
LONGEST = 8
#: Instructions that may be measured.
INSTRUCTIONS = 80_000
#: Largest ratio of instructions of the new groups to those of the old: instructions take memory too.
LONGER = 1.25
#: Largest ratio of cost after a round of measuring to that before, for another round.
BETTER = 0.9995
#: Share of the time that GEMM or VECTOR works, above which other groups bring next to nothing.
BUSY = 0.95
#: Scale on estimates, so that slightly over-estimated candidates are still measured.
OPTIMISM = 0.95


class _Groups:
    """Candidates for the groups of a step, with the measurements so far.

    Attributes:
        known, lengths: cost and instructions of measured candidates, by their key.
    """

    def __init__(self, problem: StepProblem, schedule: Schedule, progress: Callable[[float], None]) -> None:
        self.problem, self.schedule = problem, schedule
        self.budgeted, self.budget = problem.budgeted(INSTRUCTIONS, progress)
        self.candidates = candidates(
            problem.dry_context(), problem.layers, schedule.stays, problem.outside, closer_estimate, LONGEST, True
        )
        self.units = [_unit(first, unit) for first, unit in zip(schedule.starts(), schedule.units)]
        numbered = {_unit(c.first, c.group): c for options in self.candidates for c in options}
        self.scheduled = [numbered[unit] for unit in self.units]
        self.known: dict[Hashable, float] = {}
        self.lengths: dict[Hashable, int] = {}

    def tiles(self, candidate: Candidate) -> dict[int, tuple[int, ...]]:
        """Returns the tilings the schedule fixes for a candidate's layers, by number of the layer.

        A group by channels that the schedule does not have has none.
        """
        first, group = candidate.first, candidate.group
        if group.by_channel and _unit(first, group) not in self.units:
            return {}
        return {n: self.schedule.tiles[n] for n in group.tiled(first) if n in self.schedule.tiles}

    def key(self, candidate: Candidate) -> Hashable:
        """Returns a key that is equal for candidates of equal cost."""
        return candidate.key, tuple((n - candidate.first, tile) for n, tile in self.tiles(candidate).items())

    def measure(self, candidate: Candidate) -> float:
        """Returns the cost of a candidate alone, measured the first time."""
        key = self.key(candidate)
        if key not in self.known:
            found = self.budgeted.measured_units([candidate.group], self.schedule, candidate.first)
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
        while self.budget.left > 0:
            hoped, _ = cheapest(self.candidates, expected)
            unknown = [candidate for candidate in hoped if self.key(candidate) not in self.known]
            for candidate in sorted(unknown, key=lambda c: -c.estimate):
                if self.budget.left > 0:
                    self.measure(candidate)
            path, found = measured()
            if not unknown or found > BETTER * lowest:
                break
            lowest = found
        return path


def refine_groups(problem: StepProblem, start: Costed, progress: Callable[[float], None] = lambda done: None) -> Costed:
    """Returns the schedule with other groups, if the whole step is cheaper with them.

    Args:
        problem: the step.
        start: the schedule and its cost.
        progress: called with the fraction done.
    """
    schedule, cost = start
    if cost == math.inf:
        return start
    groups = _Groups(problem, schedule, progress)
    if problem.busy_cycles(schedule)[0] > BUSY * cost:
        return start
    alone = sum(groups.measure(candidate) for candidate in groups.scheduled if groups.budget.left > 0)
    if groups.budget.left <= 0:
        return start
    scale = OPTIMISM * alone / sum(candidate.estimate for candidate in groups.scheduled)
    path = groups.cheapest_measured(scale, max(0.0, alone - cost) / max(1, len(groups.scheduled) - 1))
    if _on_chip(c.group for c in path) < _on_chip(schedule.units):
        return start  # tensors that were on the chip would need room in memory
    if groups.instructions(path) > LONGER * groups.instructions(groups.scheduled):
        return start
    kept = {number: tile for candidate in path for number, tile in groups.tiles(candidate).items()}
    better = Schedule(schedule.stays, [candidate.group for candidate in path], kept)
    found = compared(problem, start, better)
    return found if found.cost < GAIN * cost else start


def _on_chip(units: Iterable[LayerGroup]) -> int:
    """Returns the bytes of the tensors between fused layers."""
    return sum(tensor.view.nbytes for unit in units for tensor in unit.between)


def _unit(first: int, group: LayerGroup) -> tuple[int, int, int]:
    """Returns the number of a group's first layer, of its layers, and its rows per band."""
    return first, len(group.layers), group.step
