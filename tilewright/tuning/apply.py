"""Tuned schedules in a compile: applied where a log has them, and never where they would make its figure larger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.common.native import BuildError
from tilewright.compiler.npu.schedule.decisions import Decisions, schedule_of, signature
from tilewright.compiler.npu.schedule.problem import Schedule, Scheduler, StepProblem
from tilewright.compiler.stages.note_forms import TUNED
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.tuning.log import TuningLog, program_digest
from tilewright.tuning.objective import IN_CYCLES, Objective

#: Makes the program; asks the scheduler, if there is one, for the schedule of every NPU step.
Build = Callable[[Scheduler | None], Program]


@dataclass
class Advisor:
    """The scheduler of a compile that has decisions for some steps.

    Attributes:
        choose: decisions for a step, by its signature; None for none.
        steps: the steps asked for, measured in cycles, by signature.
        used: decisions that were applied.
    """

    choose: Callable[[str], Decisions | None]
    steps: dict[str, StepProblem] = field(default_factory=dict)
    used: dict[str, Decisions] = field(default_factory=dict)

    def __call__(self, problem: StepProblem) -> Schedule | None:
        name = signature(problem)
        step = self.steps[name] = problem.fresh().measured_by(IN_CYCLES)
        decisions = self.choose(name)
        if decisions is None:
            return None
        from tilewright.tuning.trials import fits  # processes of a search are not needed where no log has schedules

        if not fits(step, decisions):
            return None
        self.used[name] = decisions
        return schedule_of(step, decisions)

    @property
    def program(self) -> str:
        """Digest of all steps."""
        return program_digest(self.steps)


def build_tuned(build: Build, log: TuningLog, *, memory: MemoryTiming = DEFAULT_MEMORY, trust: bool = True) -> Program:
    """A program with the schedules of the log, if they make it better by the objective of the log.

    Where the log measured just this program with this compiler, that is known; else the program is built both ways and
    the exact figures of the two decide.

    Args:
        memory: that the program is built for.
        trust: False to measure always.
    """
    advisor = Advisor(log.best)
    program = build(advisor)
    if not advisor.used:
        return program
    found = log.proven(advisor.program, advisor.used) if trust else None
    if found is not None:
        program.notes.append(_note(log.objective, found.figure, found.default_figure))
        return program
    plain = build(None)
    try:
        figure, default = log.objective.of(program, memory), log.objective.of(plain, memory)
    except BuildError:  # no compiler for the simulator: nothing is known about cycles
        return plain
    if figure >= default:
        return plain
    program.notes.append(_note(log.objective, figure, default))
    return program


def _note(objective: Objective, figure: float, default: float) -> str:
    before = objective.describe(default).removesuffix(" " + objective.unit)
    return f"{TUNED}{objective.describe(figure)} instead of {before}, by schedules of the tuning log"
