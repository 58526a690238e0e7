"""Objectives that a search minimises: cycles, energy, or the product of both."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tilewright.common.text import suggest
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op, from_bytes
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.runtime.cost import measure, program_cycles
from tilewright.runtime.energy import meter


@dataclass(frozen=True)
class Figures:
    """Exact cycles of a program or a step, and its µJ, on the chip and of DRAM, by the model of energy."""

    cycles: float
    microjoules: float


@dataclass(frozen=True)
class Cost:
    """A cost function of the compiler (`tilewright.compiler.npu.schedule.problem.Measure`): so much for every cycle
    and every µJ, with some memory. Costs of parts add up to that of the whole."""

    cycle: float = 1
    microjoule: float = 0.0
    timing: MemoryTiming = DEFAULT_MEMORY

    def __call__(self, config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        cycles = measure(config, image, arena_bytes, self.timing)
        found = self.cycle * cycles
        if self.microjoule:
            found += self.microjoule * _microjoules(config, from_bytes(image), cycles)
        return found


IN_CYCLES, IN_MICROJOULES = Cost(), Cost(0, 1)


class Objective(StrEnum):
    """The quantity to minimise, by its name on the command line."""

    CYCLES = "cycles"
    ENERGY = "energy"
    ENERGY_DELAY = "energy-delay"

    @staticmethod
    def named(name: str) -> Objective:
        """Raises `UsageError` listing the names."""
        if name not in list(Objective):
            raise UsageError(f"unknown objective {name!r}{suggest(name, Objective)}; there are {', '.join(Objective)}")
        return Objective(name)

    @property
    def unit(self) -> str:
        """Unit of `figure`. A clock would multiply products by the same for all schedules, so they have none."""
        return {"cycles": "cycles", "energy": "µJ", "energy-delay": "µJ·cycles"}[self]

    def figure(self, of: Figures) -> float:
        """The quantity to minimise, in `unit`."""
        match self:
            case Objective.CYCLES:
                return of.cycles
            case Objective.ENERGY:
                return of.microjoules
            case Objective.ENERGY_DELAY:
                return of.cycles * of.microjoules

    def cost(self, start: Figures, timing: MemoryTiming = DEFAULT_MEMORY) -> Cost:
        """A cost function of steps and parts of them on a memory, in `unit`.

        A product of sums is no sum of products. What is minimised for it is the mean of both figures, each relative to
        `start`, times the product there: a mean below 1 means a smaller product, as no geometric mean is above it.
        """
        match self:
            case Objective.CYCLES:
                return replace(IN_CYCLES, timing=timing)
            case Objective.ENERGY:
                return replace(IN_MICROJOULES, timing=timing)
            case Objective.ENERGY_DELAY:
                return Cost(start.microjoules / 2, start.cycles / 2, timing)

    def measure(self, plain: Callable[[], Program], timing: MemoryTiming) -> Callable[[NpuConfig, bytes, int], float]:
        """The cost of schedules in a compile for a memory; `plain` makes the program whose figures a product needs.

        Raises:
            BuildError: no C++ compiler for the simulator.
        """
        if self is Objective.CYCLES:
            return functools.partial(measure, timing=timing)
        start = program_figures(plain(), timing) if self is Objective.ENERGY_DELAY else Figures(1, 1)
        return self.cost(start, timing)

    def of(self, program: Program, timing: MemoryTiming = DEFAULT_MEMORY) -> float:
        """The figure of a program on a memory. It is asked for its energy only where that matters: the model takes a
        second to load. Raises `BuildError`: no C++ compiler for the simulator."""
        if self is Objective.CYCLES:
            return float(program_cycles(program, timing))
        return self.figure(program_figures(program, timing))

    def describe(self, figure: float) -> str:
        """A figure for people."""
        return f"{four_digits(figure) if self is not Objective.CYCLES else f'{figure:,.0f}'} {self.unit}"


def four_digits(figure: float) -> str:
    """Formats a figure with four digits, or all digits before the point."""
    return f"{figure:,.{max(0, 3 - math.floor(math.log10(figure)))}f}" if figure else "0"


def program_figures(program: Program, timing: MemoryTiming = DEFAULT_MEMORY) -> Figures:
    """Measures all NPU steps of a program on a memory.

    Raises:
        BuildError: no C++ compiler for the simulator.
    """
    cycles = program_cycles(program, timing)
    return Figures(cycles, _microjoules(program.config, program.ops(), cycles, program.constants))


def _microjoules(config: NpuConfig, ops: Sequence[Op], cycles: int, constants: bytes | None = None) -> float:
    return meter().load().energy(config, meter().total(ops, config, cycles, constants)).total / 1e6
