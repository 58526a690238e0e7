"""What random programs and programs with errors cover of the RTL.

python -m tests.coverage --programs 200 --page build/signoff/coverage.md --json build/signoff/coverage.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hw.sim.device import RtlDevice
from isa.config import NpuConfig
from isa.encoding import op, to_bytes
from tests.common.equality import CONFIGS, case
from tests.common.error_cases import CASES, outcome
from tests.coverage.functional import bins, hits
from tests.coverage.points import LINES, TOGGLES, Point, library, read, read_waivers, sift

#: What follows the name of a signal in the name of a toggle.
_BIT = re.compile(r"(\[.*)?:[01]->[01]$")
#: Programs that stop, besides CASES: as words, and with what is given to the run.
_STOPS: list[tuple[bytes, dict[str, int]]] = [
    (to_bytes([op("GEMM")]), {}),  # no END
    (bytes([0xFF]) + bytes(15), {}),  # no such instruction
    *(
        (to_bytes([op(f"{e}_SYNC", wait0=1), op("END")]), {"watchdog": 500})
        for e in ("LOAD", "GEMM", "VECTOR", "STORE")
    ),
    *((to_bytes([op(f"{e}_SYNC", signal0=9)] * 256 + [op("END")]), {}) for e in ("GEMM", "VECTOR", "STORE")),
]


def main(arguments: list[str]) -> int:
    """The command line; returns 1 where a waiver waives nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="tiny", choices=CONFIGS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--programs", type=int, default=100, help="random programs (default %(default)s)")
    parser.add_argument("--page", type=Path, default=Path("build/signoff/coverage.md"), help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    config = CONFIGS[options.config]
    points, seen = measure(config, options.programs)
    missing, waived, idle = sift(points, read_waivers())
    figures = {"config": config.name, "programs": options.programs, "stops": len(CASES) + len(_STOPS)}
    figures |= summary(points, missing, waived) | functional(config, seen)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(figures, missing), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    for kind in (LINES, TOGGLES, "functional"):
        print(f"{kind}: {_share(figures[kind])}")
    for waiver in idle:
        print(f"waiver {waiver.match} waives nothing")
    print(f"see {options.page}")
    return int(bool(idle))


def measure(config: NpuConfig, programs: int) -> tuple[dict[Point, int], set[str]]:
    """Points with how often each was seen, and the functional bins that were hit."""
    path, text = library(config)
    device = RtlDevice(config, library=path)
    seen: set[str] = set()
    for seed in range(programs):
        program, device.timing = case(seed, config)
        device.free_all()
        _, regions = program.install(device)
        device.run(regions, 0, 0, len(program.ops))
        seen |= hits(program.ops, config)
    for words, given in [*((to_bytes([*ops, op("END")]), {}) for ops in CASES), *_STOPS]:
        stopped = outcome(device, words, **given)
        if stopped is not None:
            seen.add(f"{stopped[1].name} fault {stopped[0].name}")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "coverage.dat"
        device.write_coverage(file)
        return read(file, text), seen


def summary(points: Iterable[Point], missing: set[Point], waived: set[Point]) -> dict[str, Any]:
    """Figures by kind, and by unit: points, waived ones among them, those that were not covered."""
    figures: dict[str, Any] = {}
    for kind in (LINES, TOGGLES):
        here = [p for p in points if p.kind == kind]
        figures[kind] = _counts(here, missing, waived)
        units = {unit: [p for p in here if p.unit == unit] for unit in sorted({p.unit for p in here})}
        figures[f"{kind} by unit"] = {unit: _counts(some, missing, waived) for unit, some in units.items()}
    return figures


def _counts(points: list[Point], missing: set[Point], waived: set[Point]) -> dict[str, int]:
    return {
        "points": len(points),
        "waived": sum(p in waived for p in points),
        "missing": sum(p in missing for p in points),
    }


def functional(config: NpuConfig, seen: set[str]) -> dict[str, Any]:
    """Figures of what the instruction table says there is."""
    wanted = bins(config)
    missing = sorted(wanted - seen)
    return {
        "functional": {"points": len(wanted), "waived": 0, "missing": len(missing)},
        "functional missing": missing,
    }


def _share(counts: dict[str, int]) -> str:
    wanted = counts["points"] - counts["waived"]
    share = 100 * (wanted - counts["missing"]) / wanted if wanted else 100.0
    return f"{wanted - counts['missing']} of {wanted} ({share:.1f} %), {counts['waived']} waived"


def page(figures: dict[str, Any], missing: set[Point]) -> str:
    """The page: an overview by unit, then what is not covered."""
    what = f"{figures['programs']} random programs and {figures['stops']} that stop, on `{figures['config']}`"
    lines = ["# Coverage of the RTL", "", f"By {what}.", "", "| unit | lines | toggles |", "|---|---|---|"]
    by_unit = [figures[f"{kind} by unit"] for kind in (LINES, TOGGLES)]
    for unit in sorted({*by_unit[0], *by_unit[1]}):
        cells = [_share(units[unit]) if unit in units else "" for units in by_unit]
        lines.append(f"| `{unit}` | {' | '.join(cells)} |")
    lines.append(f"| all | {_share(figures[LINES])} | {_share(figures[TOGGLES])} |")
    lines += ["", f"Functional: {_share(figures['functional'])}.", "", "## Functional bins not covered", ""]
    lines += [f"- {name}" for name in figures["functional missing"]]
    lines += ["", "## Lines not covered", ""]
    lines += sorted(f"- `{p.place}`: {p.name}" for p in missing if p.kind == LINES)
    lines += ["", "## Signals with bits that did not toggle both ways", "", "| signal | toggles missing |", "|---|---|"]
    signals = Counter(f"{p.place}.{_BIT.sub('', p.name)}" for p in missing if p.kind == TOGGLES)
    lines += [f"| `{name}` | {count} |" for name, count in signals.most_common()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
