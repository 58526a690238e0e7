"""`tune`: searches schedules for all NPU steps of a model and puts what it finds into the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compiler.npu.schedule.decisions import Decisions
from compiler.npu.schedule.search import Policy
from isa.program import Program
from tilewright.errors import UsageError
from tilewright.runtime.cost import program_cycles
from tilewright.tuning.apply import Advisor, Build
from tilewright.tuning.log import Finding, TuningLog, compiler_digest
from tilewright.tuning.search import Tuned, tune_step

#: Seconds between findings written to the log while a search goes on.
_CHECKPOINT = 60.0


@dataclass
class TuneResult:
    """What the search for faster schedules of a program came to.

    Attributes:
        program: with the best schedules.
        default_cycles, cycles: of the whole program, exact.
        steps: what was found for each step.
        history: (seconds, cycles of the steps summed) at each improvement.
        interrupted: by the user; what had been found by then is there.
    """

    program: Program
    default_cycles: int
    cycles: int
    steps: list[Tuned] = field(default_factory=list)
    history: list[tuple[float, float]] = field(default_factory=list)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.program.name,
            "config": self.program.config.name,
            "default_cycles": self.default_cycles,
            "cycles": self.cycles,
            "tried": sum(step.tried for step in self.steps),
            "interrupted": self.interrupted,
            "history": [{"seconds": seconds, "cycles": cycles} for seconds, cycles in self.history],
            "steps": [
                {
                    "default_cycles": step.default_cycles,
                    "cycles": step.cycles,
                    "tried": step.tried,
                    "moves": step.taken,
                    "decisions": step.best.to_dict(),
                }
                for step in self.steps
            ],
        }


def tune(
    build: Build,
    log: TuningLog,
    seconds: float,
    *,
    jobs: int = 1,
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> TuneResult:
    """Searches for `seconds`, or until interrupted; whatever was found by then is kept.

    Args:
        build: compiles the model.
        log: findings of earlier searches are gone on from, new ones are added.
        jobs: processes.
        progress: called with the best so far and the fraction of the time used.

    Raises:
        UsageError: nothing of the model runs on the NPU.
    """
    advisor = Advisor(lambda name: None)
    plain = build(advisor)
    if not advisor.steps:
        raise UsageError(f"{plain.name}: no part of it runs on the NPU, there is nothing to tune")
    default_cycles = program_cycles(plain)
    result = TuneResult(plain, default_cycles, default_cycles)
    chosen: dict[str, Decisions] = {}
    started = saved = time.monotonic()

    def save() -> None:
        """Builds the whole program and writes it down if it is the fastest yet."""
        program = build(Advisor(chosen.get))
        cycles = program_cycles(program)
        if cycles < result.cycles:
            result.program, result.cycles = program, cycles
            if log.proven(advisor.program, chosen) is None:
                names = program.name, program.config.name, compiler_digest(), advisor.program
                log.add(Finding(*names, dict(chosen), result.default_cycles, cycles))

    sizes = {name: step.schedule_cycles(step.default(Policy())) for name, step in advisor.steps.items()}
    rest = sum(sizes.values())
    settled = 0.0  # cycles of the steps that are done
    for name, step in advisor.steps.items():
        used = time.monotonic() - started
        share = (seconds - used) * sizes[name] / max(rest, 1.0)
        rest -= sizes[name]
        if share <= 0 or result.interrupted:
            break

        def report(
            done: float, tuned: Tuned, name: str = name, used: float = used, share: float = share,
            others: float = settled + rest,
        ) -> None:  # fmt: skip
            nonlocal saved
            total = others + tuned.cycles
            if not result.history or total < result.history[-1][1]:
                result.history.append((time.monotonic() - started, total))
            gain = 1 - tuned.cycles / tuned.default_cycles
            text = f"{tuned.cycles:,.0f} cycles ({-gain:+.2%}), {tuned.tried} schedules tried"
            progress(text, min(1.0, (used + share * done) / seconds))
            if tuned.cycles < tuned.default_cycles and time.monotonic() - saved > _CHECKPOINT:
                if chosen.get(name) != tuned.best:
                    chosen[name] = tuned.best
                    save()
                saved = time.monotonic()

        tuned = tune_step(step, share, known=log.best(name), jobs=jobs, seed=seed, progress=report)
        result.steps.append(tuned)
        result.interrupted = tuned.interrupted
        settled += tuned.cycles
        if tuned.cycles < tuned.default_cycles:
            chosen[name] = tuned.best
    if chosen:
        save()
    return result
