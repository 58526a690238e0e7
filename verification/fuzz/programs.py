"""Random programs on RTL, cycle-level and functional simulator: the same bytes, cycles and counters, or the seed.

    python -m verification.fuzz.programs --count 200                       presets and variants in turn
    python -m verification.fuzz.programs --configs tiny,serial --seed 4711 --count 1
    python -m verification.fuzz.programs --machines 300 --count 6000       random machines, on the two simulators
    python -m verification.fuzz.programs --machines 10 --count 100 --rtl   and on RTL: each machine is built

A failure prints the command that replays it, the first event that differs and the shortest program that still does; on
a random machine also the plainest machine on which programs of this seed differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tilewright.common.processes import processors
from tilewright.isa.assembler import disassemble_one
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from verification.code import digest_of_code
from verification.measured import SOURCES, write_with_command
from verification.programs.equality import CONFIGS, Trio, case, cycle_differences, minimised, shrink, with_ops
from verification.programs.random_configs import random_config, simplest
from verification.rtl_text import digest_of_machines
from verification.source_faults import CPP

#: Machine, first seed, which programs from there on, arguments that run it again, whether to look for shorter programs.
Job = tuple[NpuConfig, int, range, str, bool]
DEFAULT = "tiny,small,base,wide_bus,widest_bus,narrow_out,narrow_in,serial,no_units,narrow_no_units,one_queue,large"
#: The machines of docs/signoff.md, by one word.
SIGNED_OFF = "nano,tiny,small,wide,widest_bus,narrow_out,serial,two_passes,one_lane,narrow_no_units"


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz.programs", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="programs in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed, of programs and of random machines")
    parser.add_argument("--configs", default=DEFAULT, help=f"of {', '.join(CONFIGS)}; each is built once; signoff: "
                        "those of docs/signoff.md")  # fmt: skip
    parser.add_argument("--machines", type=int, default=0, metavar="N", help="N random machines in place of --configs")
    parser.add_argument("--rtl", action="store_true", help="random machines on RTL too")
    parser.add_argument("--json", type=Path, help="write the figures here; what such a file of the same design has "
                        "is not run again")  # fmt: skip
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a shorter program")
    options = parser.parse_args(arguments)
    if options.machines < 0 or options.count < 1:
        parser.error("--machines is at least 0, --count at least 1")
    start = time.monotonic()
    if options.machines:
        machines = list(range(options.seed, options.seed + options.machines))
        runs = [(f"--machines 1 --seed {n}{' --rtl' * options.rtl}", random_config(n), n) for n in machines]
    else:
        names = (SIGNED_OFF if options.configs == "signoff" else options.configs).split(",")
        unknown = [n for n in names if n not in CONFIGS]
        if unknown:
            parser.error(f"unknown configuration {unknown[0]!r}; known: {', '.join(CONFIGS)}")
        runs = [(f"--configs {n}", CONFIGS[n], options.seed) for n in names]
    failures = cycles = 0
    figures: dict[str, Any] = {"machines": [config.name for _, config, _ in runs], "programs": options.count}
    figures |= {"seed": options.seed, "rtl": bool(options.rtl or not options.machines)}
    if options.json:
        figures[SOURCES] = (
            digest_of_machines(config for _, config, _ in runs) if figures["rtl"] else digest_of_code(CPP)
        )
    known, before = _known(options.json, figures) if options.json else (0, 0)
    numbers = map(range, _shared(known, runs), _shared(options.count, runs))
    jobs = [
        (config, seed, some, replay, not options.no_shrink)
        for (replay, config, seed), some in zip(runs, numbers, strict=True)
        if some
    ]
    side_by_side = options.machines and not options.rtl
    with ProcessPoolExecutor(processors() if side_by_side else 1) as pool:
        results = pool.map(_simulators, jobs) if side_by_side else map(_rtl, jobs)
        for (config, seed, some, *_), (bad, ran, seconds) in zip(jobs, results, strict=True):
            if bad or not options.machines:
                what = f"{len(some)} programs from seed {seed + some.start}"
                print(f"{config.name}: {what}, {ran} cycles, {bad} differ, {seconds:.0f} s", flush=True)
            failures += bad
            cycles += ran
    what = f"{options.count} programs on {min(len(runs), options.count)} machines"
    what += f", {known} of them before" * bool(known)
    print(f"{what}, {cycles} cycles of RTL, {failures} differ, {time.monotonic() - start:.0f} s")
    if options.json:
        write_with_command(options.json, parser, arguments, figures | {"cycles": before + cycles, "differ": failures})
    return min(failures, 100)


def _shared(count: int, runs: Sequence[object]) -> list[int]:
    """Divides `count` programs among the machines."""
    return [count // len(runs) + (at < count % len(runs)) for at in range(len(runs))]


def _known(file: Path, figures: Mapping[str, Any]) -> tuple[int, int]:
    """Reads the number of programs known to be equal, of those to be run, and their cycles of RTL."""
    if not file.is_file():
        return 0, 0
    found = json.loads(file.read_text(encoding="utf-8"))
    same = all(found.get(key) == figures[key] for key in ("machines", "seed", "rtl", SOURCES))
    if not same or found["differ"] or found["programs"] > figures["programs"]:
        return 0, 0
    return found["programs"], found["cycles"]


def _simulators(job: Job) -> tuple[int, int, float]:
    start = time.monotonic()
    return simulators(*job), 0, time.monotonic() - start


def _rtl(job: Job) -> tuple[int, int, float]:
    start = time.monotonic()
    return *rtl(*job), time.monotonic() - start


def rtl(config: NpuConfig, first: int, numbers: range, replay: str, shorter: bool) -> tuple[int, int]:
    """Runs programs on RTL and simulators; returns the number of those that differ, and cycles."""
    trio = Trio(config)
    bad = cycles = 0
    for seed in (first + number for number in numbers):
        program, timing = case(seed, trio.config)
        lines = trio.differences(program, timing)
        cycles += trio.cycle.trace.cycles if trio.cycle.trace else 0
        if not lines:
            continue
        bad += 1
        print(f"FAILED: python -m verification.fuzz.programs {_of(replay, seed, first)}   ({timing})")
        print(*(f"    {line}" for line in lines), sep="\n")
        if shorter and any("event" in line or "counters" in line or "stops" in line for line in lines):
            short = shrink(trio, program, timing, lambda line: print(f"    {line}", flush=True))
            print(*_listed(short.ops), sep="\n")
            print(*(f"    {line}" for line in trio.differences(short, timing, watchdog=2000)), sep="\n")
    return bad, cycles


def simulators(config: NpuConfig, first: int, numbers: range, replay: str, shorter: bool) -> int:
    """Runs programs on the two simulators; returns the number of those that differ."""
    bad = 0
    for seed in (first + number for number in numbers):
        program, timing = case(seed, config)
        lines = cycle_differences(config, program, timing)
        if not lines:
            continue
        bad += 1
        print(f"FAILED: python -m verification.fuzz.programs {_of(replay, seed, first)}   ({timing})")
        print(*(f"    {line}" for line in lines), sep="\n")
        if not shorter:
            continue

        def differs(ops: Sequence[Op], config: NpuConfig = config) -> bool:
            return bool(cycle_differences(config, with_ops(program, ops), timing))  # noqa: B023 - used at once

        print(*_listed(minimised(program.ops, differs, lambda line: print(f"    {line}", flush=True))), sep="\n")

        def differs_on(other: NpuConfig, seed: int = seed) -> bool:
            return bool(cycle_differences(other, *case(seed, other)))

        plain = simplest(config, differs_on)
        print(f"    on {plain}")
    return bad


def _of(replay: str, seed: int, first: int) -> str:
    """Arguments that run the same again: a random machine has the seed of its first program."""
    if "--machines" in replay:
        return f"{replay} --count {seed - first + 1}"
    return f"{replay} --seed {seed} --count 1"


def _listed(ops: Sequence[Op]) -> Iterator[str]:
    return (f"    {i}: {disassemble_one(o)}" for i, o in enumerate(ops))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
