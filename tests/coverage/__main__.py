"""What the trials of `tests.common.rtl_trials` cover of the RTL.

python -m tests.coverage --programs 200 --page build/signoff/coverage.md --json build/signoff/coverage.json
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.measured import write_with_command
from hw.sim.device import RtlDevice
from isa.config import NpuConfig
from isa.device import Counters, DeviceError, Launch
from tests.common.equality import CONFIGS
from tests.common.rtl_trials import LIMIT, Trial, kinds, trials
from tests.coverage.functional import bins, hits
from tests.coverage.points import LINES, TOGGLES, Point, add, library, read, read_waivers, sift

#: What follows the name of a signal in the name of a toggle.
_BIT = re.compile(r"(\[.*)?:[01]->[01]$")


def main(arguments: list[str]) -> int:
    """The command line; returns 1 where a waiver waives nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="tiny", choices=CONFIGS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--programs", type=int, default=100, help="random programs (default %(default)s)")
    parser.add_argument("--page", type=Path, default=Path("build/signoff/coverage.md"), help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    config = CONFIGS[options.config]
    points, seen, ran = measure(config, trials(config, options.programs))
    missing, waived, idle = sift(points, read_waivers())
    figures: dict[str, Any] = {"config": config.name, "trials": ran, "programs": options.programs}
    figures |= summary(points, missing, waived) | functional(config, seen)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(figures, missing), encoding="utf-8")
    if options.json:
        write_with_command(options.json, parser, arguments, figures)
    for kind in (LINES, TOGGLES, "functional"):
        print(f"{kind}: {_share(figures[kind])}")
    for waiver in idle:
        print(f"waiver {waiver.match} waives nothing")
    print(f"see {options.page}")
    return int(bool(idle))


class _Watched(RtlDevice):
    """Remembers the errors that runs ended with, as names of bins."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.stops: set[str] = set()

    def execute(self, launch: Launch, *, log: str = "", **options: Any) -> Counters:
        try:
            return super().execute(launch, log=log, **options)
        except DeviceError as error:
            assert error.engine is not None
            self.stops.add(f"{error.engine.name} fault {error.code.name}")
            raise


def _make(config: NpuConfig, path: Path, made: list[_Watched], origin: int) -> RtlDevice:
    made.append(_Watched(config, library=path, limit=LIMIT, origin=origin))
    return made[-1]


def measure(config: NpuConfig, some: Iterable[Trial]) -> tuple[dict[Point, int], set[str], Counter[str]]:
    """Points with how often each was seen, the functional bins that were hit, and the trials there were, by kind.

    Raises:
        AssertionError: a trial finds a difference.
    """
    path, text = library(config)
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "coverage.dat"
        for trial in some:
            made: list[_Watched] = []
            how = trial.run(functools.partial(_make, config, path, made))
            assert not how, f"{trial.name}: {how}"
            seen |= hits(trial.ops, config)
            ran[trial.kind] += 1
            for device in made:
                seen |= device.stops
                device.write_coverage(file)
                add(file, counts)
                device.close()
    return read(counts, text), seen, ran


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
    lines = [
        "# Coverage of the RTL",
        "",
        f"By {kinds(figures['trials'])}, on `{figures['config']}`.",
        "",
        "| unit | lines | toggles |",
        "|---|---|---|",
    ]
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
