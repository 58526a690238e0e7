"""Faults in compiled programs: the prover rejects all that change any output or any order.

    python -m verification.program_faults                        until 500 are shown or are faults of order
    python -m verification.program_faults --count 20 --json -    fewer, and all as data

The programs are those of the digits on five machines, and of small random quantised graphs on random presets. A fault
counts if an input on the functional simulator shows it, or if two accesses have no order. Those that are proved are
equivalent: no input changes an output. Those that are rejected without an input that shows it are listed as open.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from tests.common.paths import ROOT
from tilewright.common.store import sources_digest
from tilewright.isa.program import Program
from verification.measured import SOURCES, write_with_command
from verification.program_faults.faults import KINDS, fault
from verification.program_faults.judge import Judgement, Subject, judge, random_subject, subject

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
MACHINES = ("tiny", "nano", "small", "base", "wide")
FOUND = ("shown", "order", "unsaid", "open", "same", "missed")


def subjects(random: Random, graphs: int, inputs: int) -> Iterator[Subject]:
    """The programs: of the digits, and of so many random graphs that are proved."""
    for config in MACHINES:
        found = subject("digits", DIGITS, config, inputs)
        assert isinstance(found, Subject), f"digits on {config}: {found}"
        yield found
    while graphs:
        chosen = random_subject(random.randrange(10_000), inputs)
        if isinstance(chosen, Subject) and chosen.program.instructions:
            graphs -= 1
            yield chosen


def judged(
    cases: Sequence[Subject], random: Random, count: int, keep: Callable[[Judgement, Program], object] | None = None
) -> Iterator[Judgement]:
    """Judges faults until so many count; every kind and every program in turns. Those that count are given to `keep`,
    with their programs."""
    counted, number = 0, 0
    while counted < count:
        case, kind = cases[random.randrange(len(cases))], KINDS[number % len(KINDS)]
        made = fault(random, case.program, kind)
        number += 1
        if made is None:
            continue
        found = judge(case, kind, *made, seed=number)
        if found.found in ("shown", "order", "missed"):
            counted += 1
            if keep is not None:
                keep(found, made[1])
        yield found


def table(found: Sequence[Judgement]) -> str:
    """Counts by kind and fate."""
    counts = Counter((each.kind, each.found) for each in found)
    rows = [f"{'':10}" + "".join(f"{name:>8}" for name in FOUND)]
    rows += [f"{kind:10}" + "".join(f"{counts[kind, name]:8}" for name in FOUND) for kind in KINDS]
    rows.append(f"{'all':10}" + "".join(f"{sum(counts[kind, name] for kind in KINDS):8}" for name in FOUND))
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 1 if a fault was missed."""
    parser = argparse.ArgumentParser(prog="python -m verification.program_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="faults that count (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default %(default)s)")
    parser.add_argument("--graphs", type=int, default=25, help="random graphs (default %(default)s)")
    parser.add_argument("--inputs", type=int, default=12, help="random inputs (default %(default)s)")
    parser.add_argument("--json", metavar="FILE|-", help="write all faults here; - for standard output")
    options = parser.parse_args(arguments)
    random, found = Random(options.seed), []
    for each in judged(list(subjects(random, options.graphs, options.inputs)), random, options.count):
        found.append(each)
        if each.found == "missed":
            print(f"missed: {each.program}: {each.what}: {each.shown}", file=sys.stderr, flush=True)
    sources = sources_digest("additions/prove/**/*", "isa/**/*", "compiler/**/*")
    counts = Counter(each.found for each in found)
    figures = {SOURCES: sources, "counts": dict(counts), "faults": [each.as_json() for each in found]}
    if options.json == "-":
        print(json.dumps(figures, indent=2))
    else:
        if options.json:
            write_with_command(Path(options.json), parser, arguments, figures)
        print(table(found))
        print(f"{counts['shown'] + counts['order']} faults rejected, {counts['missed']} missed; "
              f"{counts['same']} equivalent, {counts['unsaid'] + counts['open']} without an input")  # fmt: skip
    return int(counts["missed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
