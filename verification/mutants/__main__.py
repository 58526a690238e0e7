"""Faults in the RTL of the NPU, and which of them the tests find.

python -m verification.mutants --count 300 --seed 1 --json build/signoff/mutants.json
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from verification.measured import write_with_command
from verification.mutants.faults import Fault, Sample, sample
from verification.mutants.run import Found, kept, left_open, look, summary
from verification.programs.equality import CONFIGS
from verification.trials.all import all_trials
from verification.trials.trial import Trial


def _looked(drawn: Sample, chosen: Sequence[Fault], some: Sequence[Trial], prove: bool) -> Iterator[Found]:
    """Yields the result of each of the chosen faults. Those without a trial come last of their group if they shall be
    proved."""
    for library, faults in drawn.groups(chosen):
        left = []
        for found in look(drawn.config, library, faults, some):
            if prove and not found.trial:
                left.append(found)
            else:
                yield found
        if left:
            prover = drawn.prover([found.fault for found in left])
            for found in left:
                verdict = prover.verdict(found.fault.number)
                yield replace(found, how=str(verdict), nothing=verdict.equivalent)


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m verification.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="tiny", choices=CONFIGS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--count", type=int, default=100, help="faults in the sample (default %(default)s)")
    parser.add_argument("--first", type=int, help="look for so many of them; the others are not run (default all)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default %(default)s)")
    parser.add_argument("--programs", type=int, default=60, help="random programs at most (default %(default)s)")
    parser.add_argument("--kinds", help="of trials, such as program,error (default: all in verification/trials/all.py)")
    parser.add_argument("--left", metavar="KINDS", help="of faults that the file of --json left open, look by these "
                        "kinds alone: the others have been at it (default: all)")  # fmt: skip
    parser.add_argument("--only", type=int, help="number of one fault, with what finds it")
    parser.add_argument("--prove", action="store_true", help="try to prove of those not found that nobody can see them")
    parser.add_argument("--json", type=Path, help="write the figures here, and go on where such a file of the same "
                        "design has ended")  # fmt: skip
    options = parser.parse_args(arguments)
    last = min(options.count, options.first or options.count)
    kinds, late = (set(text.split(",")) if text else set() for text in (options.kinds, options.left))
    if options.only is not None and not 1 <= options.only <= last:
        parser.error(f"--only must be 1..{last}, not {options.only}")
    config = CONFIGS[options.config]
    drawn = sample(config, options.count, options.seed)
    drawn = replace(drawn, faults=drawn.faults[: options.first])
    faults = drawn.faults
    print(f"{len(faults)} faults in {config.name}", flush=True)
    found = kept(options.json, drawn, options.seed, options.count) if options.json and not options.only else []
    known = {each.fault.number for each in found}
    chosen = [f for f in faults if options.only in (None, f.number) and f.number not in known]
    some = [trial for trial in all_trials(config, options.programs) if options.kinds is None or trial.kind in kinds]
    if unknown := (kinds | late) - {trial.kind for trial in some}:
        parser.error(f"no trials of kind {', '.join(sorted(unknown))}")
    before = left_open(options.json, drawn, options.seed, options.count) if late and options.json else set()
    parts = [
        (trials, [f for f in chosen if (f.number in before) is again])
        for again, trials in ((True, [trial for trial in some if trial.kind in late]), (False, some))
    ]
    figures = summary(drawn, options.seed, options.count, found)
    for each in itertools.chain(*(_looked(drawn, faults, trials, options.prove) for trials, faults in parts)):
        found.append(each)
        if options.only or not each.trial:
            lines = ", ".join(each.fault.lines) or "no line"
            place = f"{each.fault.number} {each.fault.mode} {each.fault.place} ({lines})"
            print(f"{place}: {each.trial or 'NOT FOUND'} {each.how}", flush=True)
        figures = summary(drawn, options.seed, options.count, sorted(found, key=lambda each: each.fault.number))
        if options.json:  # after each, so that a run that is ended leaves what it has found out
            write_with_command(options.json, parser, arguments, figures)
    print(
        f"{figures['found']} of {figures['faults']} found, {len(figures['equivalent'])} proved to change nothing; "
        f"{figures['seconds']} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
