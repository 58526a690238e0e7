"""`tune`: searches schedules for all NPU steps of a model and puts what it finds into the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.compiler.npu.schedule.decisions import Decisions
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.errors import UsageError
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.tuning.apply import Advisor, Build
from tilewright.tuning.log import Finding, TuningLog, compiler_digest
from tilewright.tuning.objective import Figures, Objective, program_figures
from tilewright.tuning.search import Tuned, tune_step
from tilewright.tuning.trials import figures_of

#: Seconds between findings written to the log while a search goes on.
_CHECKPOINT = 60.0


@dataclass
class TuneResult:
    """Result of the search for better schedules of a program.

    Attributes:
        program: with the best schedules.
        objective: what was made small.
        default, best: of the whole program, before and after.
        steps: what was found for each step.
        figures: of each of these steps, before and after.
        history: (seconds, cost of the steps summed) at each improvement.
        interrupted: by the user; what had been found by then is there.
    """

    program: Program
    objective: Objective
    default: Figures
    best: Figures
    steps: list[Tuned] = field(default_factory=list)
    figures: list[tuple[Figures, Figures]] = field(default_factory=list)
    history: list[tuple[float, float]] = field(default_factory=list)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.program.name,
            "config": self.program.config.name,
            "objective": self.objective,
            "unit": self.objective.unit,
            "default_figure": self.objective.figure(self.default),
            "figure": self.objective.figure(self.best),
            **_both(self.default, self.best),
            "tried": sum(step.tried for step in self.steps),
            "interrupted": self.interrupted,
            "history": [{"seconds": seconds, "cost": cost} for seconds, cost in self.history],
            "steps": [
                {**_both(*figures), "tried": step.tried, "moves": step.taken, "decisions": step.best.to_dict()}
                for step, figures in zip(self.steps, self.figures)
            ],
        }


def _both(default: Figures, best: Figures) -> dict[str, float]:
    return {f"default_{name}": value for name, value in asdict(default).items()} | asdict(best)


def tune(
    build: Build,
    log: TuningLog,
    seconds: float,
    *,
    objective: Objective = Objective.CYCLES,
    memory: MemoryTiming = DEFAULT_MEMORY,
    jobs: int = 1,
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> TuneResult:
    """Searches for `seconds`, or until interrupted; whatever was found by then is kept.

    Args:
        build: compiles the model.
        log: findings of earlier searches are gone on from, new ones are added.
        objective: what is to be small.
        memory: beside the machine, that of `build`.
        jobs: processes.
        progress: called with the best so far and the fraction of the time used.

    Raises:
        UsageError: nothing of the model runs on the NPU, or the log is for another objective.
    """
    log.require(objective)
    advisor = Advisor(lambda name: None)
    plain = build(advisor)
    if not advisor.steps:
        raise UsageError(f"{plain.name}: no part of it runs on the NPU, there is nothing to tune")
    default = program_figures(plain, memory)
    result = TuneResult(plain, objective, default, default)
    steps = {name: step.measured_by(objective.cost(default, memory)) for name, step in advisor.steps.items()}
    chosen: dict[str, Decisions] = {}
    started = saved = time.monotonic()

    def save() -> None:
        """Builds the whole program and writes it down if it is the best yet."""
        program = build(Advisor(chosen.get))
        figures = program_figures(program, memory)
        if objective.figure(figures) < objective.figure(result.best):
            result.program, result.best = program, figures
            if log.proven(advisor.program, chosen) is None:
                names = program.name, program.config.name, compiler_digest(objective), advisor.program
                cycles = int(default.cycles), int(figures.cycles)
                both = objective.figure(default), objective.figure(figures)
                log.add(Finding(*names, dict(chosen), *cycles, objective, objective.unit, *both))

    sizes = {name: step.cost(make_schedule(step, Policy())) for name, step in steps.items()}
    rest = sum(sizes.values())
    settled = 0.0  # cost of the steps that are done
    for name, step in steps.items():
        used = time.monotonic() - started
        share = (seconds - used) * sizes[name] / max(rest, 1e-9)
        rest -= sizes[name]
        if share <= 0 or result.interrupted:
            break

        def report(
            done: float, tuned: Tuned, name: str = name, used: float = used, share: float = share,
            others: float = settled + rest,
        ) -> None:  # fmt: skip
            nonlocal saved
            total = others + tuned.cost
            if not result.history or total < result.history[-1][1]:
                result.history.append((time.monotonic() - started, total))
            change = tuned.cost / tuned.default_cost - 1
            text = f"{objective.describe(tuned.cost)} ({change:+.2%}), {tuned.tried} schedules tried"
            progress(text, min(1.0, (used + share * done) / seconds))
            if tuned.cost < tuned.default_cost and time.monotonic() - saved > _CHECKPOINT:
                if chosen.get(name) != tuned.best:
                    chosen[name] = tuned.best
                    save()
                saved = time.monotonic()

        tuned = tune_step(step, share, known=log.best(name), jobs=jobs, seed=seed, progress=report)
        result.steps.append(tuned)
        result.figures.append((figures_of(step, tuned.default), figures_of(step, tuned.best)))
        result.interrupted = tuned.interrupted
        settled += tuned.cost
        if tuned.cost < tuned.default_cost:
            chosen[name] = tuned.best
    if chosen:
        save()
    return result
