"""Tuned schedules in a compile: applied where a log has them, and never where they would make the program slower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from common.native import BuildError
from compiler.npu.layers.layer import Layer
from compiler.npu.schedule.decisions import Decisions, schedule_of, signature
from compiler.npu.schedule.search import Schedule, Scheduler
from isa.config import NpuConfig
from isa.program import Program
from tilewright.runtime.cost import program_cycles
from tilewright.tuning.log import TuningLog, program_digest
from tilewright.tuning.trials import StepProblem

#: Makes the program; asks the scheduler, if there is one, for the schedule of every NPU step.
Build = Callable[[Scheduler | None], Program]


@dataclass
class Advisor:
    """The scheduler of a compile that has decisions for some steps.

    Attributes:
        choose: decisions for a step, by its signature; None for none.
        steps: the steps asked for, by signature.
        used: decisions that were applied.
    """

    choose: Callable[[str], Decisions | None]
    steps: dict[str, StepProblem] = field(default_factory=dict)
    used: dict[str, Decisions] = field(default_factory=dict)

    def __call__(self, config: NpuConfig, layers: list[Layer], outside: set[str]) -> Schedule | None:
        name = signature(config, layers, outside)
        step = self.steps[name] = StepProblem(config, layers, outside)
        decisions = self.choose(name)
        if decisions is None or not step.fits(decisions):
            return None
        self.used[name] = decisions
        return schedule_of(config, layers, outside, decisions)

    @property
    def program(self) -> str:
        """Digest of all steps."""
        return program_digest(self.steps)


def build_tuned(build: Build, log: TuningLog, *, trust: bool = True) -> Program:
    """A program with the schedules of the log, if they make it faster.

    Where the log measured just this program with this compiler, that is known; else the program is built both ways and
    the exact cycles of the two decide.

    Args:
        trust: False to measure always.
    """
    advisor = Advisor(log.best)
    program = build(advisor)
    if not advisor.used:
        return program
    found = log.proven(advisor.program, advisor.used) if trust else None
    if found is not None:
        program.notes.append(_note(found.cycles, found.default_cycles))
        return program
    plain = build(None)
    try:
        cycles, default = program_cycles(program), program_cycles(plain)
    except BuildError:  # no compiler for the simulator: nothing is known about the cycles
        return plain
    if cycles >= default:
        return plain
    program.notes.append(_note(cycles, default))
    return program


def _note(cycles: int, default: int) -> str:
    return f"tuned: {cycles} cycles instead of {default}"
