"""Random streams of coded weights, every second one damaged, on functional, cycle-level simulator and RTL.

    python -m verification.fuzz.codes --count 2000                  both paths of the functional simulator, and the
    clock python -m verification.fuzz.codes --count 200 --rtl             and the RTL of each machine, which is built
    python -m verification.fuzz.codes --machines tiny --seed 17 --count 1

Bytes, cycles, counters and errors must be equal; streams that are not damaged must give their weights.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

import numpy as np

from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import DeviceError
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.coded import coded_program, shown
from verification.programs.equality import VARIANTS, Trio, cycle_differences, random_timing

#: Machines with a decoder, from the narrowest bus to the widest.
MACHINES: dict[str, NpuConfig] = {
    "tiny": PRESETS["tiny"].with_(name="coded_tiny", weight_codes=8),
    "nano": PRESETS["nano"].with_(name="coded_nano", weight_codes=16),
    "wide": PRESETS["wide"].with_(name="coded_wide", weight_codes=32),
    "base": PRESETS["base"].with_(name="coded_base", weight_codes=16),
    "large": PRESETS["large"].with_(name="coded_large", weight_codes=64),
    "serial": VARIANTS["serial"].with_(name="coded_serial", weight_codes=16),
    "widest_bus": VARIANTS["widest_bus"].with_(name="coded_widest_bus", weight_codes=32),
}
#: Of these the RTL is built in a minute.
SMALL = ("tiny", "serial", "widest_bus")


def differences(config: NpuConfig, seed: int, trio: Trio | None = None) -> tuple[list[str], str]:
    """Lines that say how models differ on one program, none if they are equal, and how it ended.

    Args:
        trio: with the RTL; else both simulators are compared, and the functional one with its definition.
    """
    program, wanted = coded_program(seed, config)
    timing = random_timing(random.Random(seed))
    lines = trio.differences(program, timing) if trio is not None else cycle_differences(config, program, timing)
    found = []
    for path in ("fast", "reference") if trio is None else ("fast",):
        try:
            found.append(("", program.run(FunctionalDevice(config, path))))
        except DeviceError as error:
            found.append((f"{error.code.name} of {error.engine} at {error.pc}", np.zeros(0, np.uint8)))
    stop, memory = found[0]
    if any(other[0] != stop or not np.array_equal(other[1], memory) for other in found[1:]):
        lines.append(f"definition: {found[1][0] or 'other bytes'}, not {stop or 'these'}")
    if wanted is not None and (stop or not np.array_equal(shown(memory, config, len(wanted)), wanted)):
        lines.append(f"weights: {stop or 'not those that were coded'}")
    return lines, stop.split()[0] if stop else "complete"


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz.codes", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="programs in all")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--machines", help=f"of {', '.join(MACHINES)}; with --rtl {','.join(SMALL)} unless told")
    parser.add_argument("--rtl", action="store_true", help="compare with RTL")
    options = parser.parse_args(arguments)
    names = options.machines.split(",") if options.machines else SMALL if options.rtl else tuple(MACHINES)
    unknown = [n for n in names if n not in MACHINES]
    if unknown:
        parser.error(f"unknown machine {unknown[0]!r}; known: {', '.join(MACHINES)}")
    failures, start, ends = 0, time.monotonic(), Counter[str]()
    for at, name in enumerate(names):
        trio = Trio(MACHINES[name]) if options.rtl else None
        for seed in range(options.seed + at, options.seed + options.count, len(names)):
            lines, end = differences(MACHINES[name], seed, trio)
            ends[end] += 1
            if lines:
                failures += 1
                print(
                    f"--machines {name} --seed {seed} --count 1{' --rtl' * options.rtl}: {'; '.join(lines)}", flush=True
                )
    by_end = ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
    print(f"{options.count} programs ({by_end}), {failures} differ, {time.monotonic() - start:.0f} s")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
