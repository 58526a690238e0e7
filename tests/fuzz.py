"""Random programs on RTL, cycle-level and functional simulator: the same bytes, cycles and counters, or the seed.

    python -m tests.fuzz --count 200                       presets and variants in turn
    python -m tests.fuzz --configs tiny,serial --seed 4711 --count 1

A failure prints the command that replays it, the first event that differs and the shortest program that still does.
"""

from __future__ import annotations

import argparse
import sys
import time

from isa.assembler import disassemble_one
from tests.common.equality import CONFIGS, Trio, case, shrink

DEFAULT = "tiny,small,base,wide_bus,widest_bus,narrow_out,narrow_in,serial,no_units,narrow_no_units,one_queue,large"


def main(arguments: list[str]) -> int:
    """The command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="programs in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--configs", default=DEFAULT, help=f"of {', '.join(CONFIGS)}; each is built once")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a shorter program")
    options = parser.parse_args(arguments)
    names = options.configs.split(",")
    unknown = [n for n in names if n not in CONFIGS]
    if unknown:
        parser.error(f"unknown configuration {unknown[0]!r}; known: {', '.join(CONFIGS)}")
    failures = cycles = 0
    start = time.monotonic()
    share = [options.count // len(names) + (i < options.count % len(names)) for i in range(len(names))]
    for name, count in zip(names, share):
        if not count:
            continue
        trio = Trio(CONFIGS[name])
        bad = before = 0
        first = time.monotonic()
        for seed in range(options.seed, options.seed + count):
            program, timing = case(seed, trio.config)
            lines = trio.differences(program, timing)
            before += trio.cycle.trace.cycles if trio.cycle.trace else 0
            if not lines:
                continue
            bad += 1
            print(f"FAILED: python -m tests.fuzz --configs {name} --seed {seed} --count 1   ({timing})")
            print(*(f"    {line}" for line in lines), sep="\n")
            if not options.no_shrink and any(
                "event" in line or "counters" in line or "stops" in line for line in lines
            ):
                short = shrink(trio, program, timing, lambda line: print(f"    {line}", flush=True))
                print(*(f"    {i}: {disassemble_one(o)}" for i, o in enumerate(short.ops)), sep="\n")
                print(*(f"    {line}" for line in trio.differences(short, timing, watchdog=2000)), sep="\n")
        seconds = time.monotonic() - first
        print(
            f"{name}: {count} programs from seed {options.seed}, {before} cycles, {bad} differ, {seconds:.0f} s",
            flush=True,
        )
        failures += bad
        cycles += before
    print(f"{options.count} programs, {cycles} cycles, {failures} differ, {time.monotonic() - start:.0f} s")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
