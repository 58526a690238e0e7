"""Faults in the RTL of the NPU, and which of them the tests find.

python -m tests.mutants --count 300 --seed 1 --json build/signoff/mutants.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.measured import write_with_command
from tests.common.equality import CONFIGS
from tests.common.rtl_directed import directed
from tests.common.rtl_far import far
from tests.common.rtl_sharp import sharp
from tests.common.rtl_trials import Trial, trials
from tests.mutants.equivalent import verdicts
from tests.mutants.faults import Fault, Sample, sample
from tests.mutants.run import Found, look, summary


def _all(drawn: Sample, chosen: Sequence[Fault], some: Sequence[Trial]) -> Iterator[Found]:
    for library, faults in drawn.groups(chosen):
        yield from look(drawn.config, library, faults, some)


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="tiny", choices=CONFIGS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--count", type=int, default=100, help="faults (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default %(default)s)")
    parser.add_argument("--programs", type=int, default=60, help="random programs at most (default %(default)s)")
    parser.add_argument("--only", type=int, help="number of one fault, with what finds it")
    parser.add_argument("--prove", action="store_true", help="try to prove of those not found that nobody can see them")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    config = CONFIGS[options.config]
    start = time.process_time()
    drawn = sample(config, options.count, options.seed)
    faults = drawn.faults
    print(f"{len(faults)} faults in {config.name}", flush=True)
    chosen = [fault for fault in faults if options.only in (None, fault.number)]
    if not chosen:
        parser.error(f"--only must be 1..{len(faults)}, not {options.only}")
    some = [*trials(config, options.programs), *directed(config), *far(config), *sharp(config)]
    found: list[Found] = []
    for each in _all(drawn, chosen, some):
        found.append(each)
        if options.only or not each.trial:
            lines = ", ".join(each.fault.lines) or "no line"
            place = f"{each.fault.number} {each.fault.mode} {each.fault.place} ({lines})"
            print(f"{place}: {each.trial or 'NOT FOUND'} {each.how}", flush=True)
        figures = summary(config, options.seed, options.count, found)
        if options.json:  # after each, so that a run that is ended leaves what it has found out
            write_with_command(options.json, parser, arguments, figures)
    left = [each.fault for each in found if not each.trial]
    if options.prove and left:
        proofs = verdicts(drawn.prover(left), [fault.number for fault in left])
        figures = summary(config, options.seed, options.count, found, proofs)
        for fault in left:
            print(f"{fault.number} {fault.mode} {fault.place}: {proofs[fault.number]}", flush=True)
        if options.json:
            write_with_command(options.json, parser, arguments, figures)
    print(
        f"{figures['found']} of {figures['faults']} found, {len(figures['equivalent'])} proved to change nothing; "
        f"{time.process_time() - start:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
