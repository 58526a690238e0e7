"""Measures the RTL coverage of the trials of `verification.trials.trial`.

python -m verification.coverage --programs 200 --page build/signoff/coverage.md --json build/signoff/coverage.json
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, Launch
from tilewright.isa.encoding import decode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import MemoryTiming
from verification.coverage.constants import constant_bits
from verification.coverage.functional import bins, hits, took_effect
from verification.coverage.kept import Kept
from verification.coverage.points import LINES, TOGGLES, Point, add, apply_waivers, library, read, read_waivers
from verification.measured import SOURCES, write_with_command
from verification.programs.equality import CONFIGS
from verification.rtl_text import digest_of_rtl
from verification.trials.all import all_trials, table
from verification.trials.trial import LIMIT, Trial


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 1 where a waiver waives nothing, or what is covered."""
    parser = argparse.ArgumentParser(prog="python -m verification.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="tiny", choices=CONFIGS, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--programs", type=int, default=100, help="random programs (default %(default)s)")
    parser.add_argument("--page", type=Path, default=Path("build/signoff/coverage.md"), help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what was covered; trials that it has are not run")
    options = parser.parse_args(arguments)
    config = CONFIGS[options.config]
    some = list(all_trials(config, options.programs))
    points, kept = measure(config, some, options.keep)
    points, constant = without_constants(points, constant_bits(config))
    sifted = apply_waivers(points, read_waivers(config))
    figures: dict[str, Any] = {"config": config.name, "trials": kept.trials_by_kind, "programs": options.programs}
    figures |= {"constant": constant} | summary(points, sifted.missing, sifted.waived) | functional(config, kept.seen)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(figures, sifted.missing), encoding="utf-8")
    if options.json:
        write_with_command(options.json, parser, arguments, figures | {SOURCES: digest_of_rtl(config)})
    for kind in (LINES, TOGGLES, "functional"):
        print(f"{kind}: {_share(figures[kind])}")
    for waiver in sifted.idle:
        print(f"waiver {waiver.match} waives nothing")
    for waiver, point in sifted.outdated:
        print(f"waiver {waiver.match}, from bit {waiver.first} on: {point.place}.{point.name} is covered")
    print(f"see {options.page}")
    return int(bool(sifted.idle or sifted.outdated))


class _Watched(RtlDevice):
    """Remembers the bins that its runs were in: of instructions that started, and of the errors they ended with."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.seen: set[str] = set()

    def execute(self, launch: Launch, *, log: str = "", **options: Any) -> Counters:
        try:
            return super().execute(launch, log=log or "events", **options)
        except DeviceError as error:
            assert error.engine is not None
            self.seen.add(f"{error.engine.name} fault {error.code.name}")
            raise
        finally:
            self._note_instructions(launch.region.base + launch.program_offset)

    def _note_instructions(self, program: int) -> None:
        started = {e.pc for e in self.events if e.kind == "start" and e.engine != Engine.FETCH}
        words = [self._word(program + INSTRUCTION_BYTES * pc) for pc in range(max(started, default=-1) + 1)]
        ops = [decode(word) for word in words if word is not None]
        self.seen |= hits(took_effect(ops, started), self.config)


def run_all(
    config: NpuConfig, library: Path, some: Iterable[Trial], closing: Callable[[RtlDevice], None] = lambda device: None
) -> tuple[set[str], Counter[str]]:
    """Runs trials; returns the functional bins that were hit, and the trials there were, by kind.

    Args:
        library: of the machine.
        closing: called with each device after its trial.

    Raises:
        AssertionError: a trial finds a difference.
    """
    seen: set[str] = set()
    ran: Counter[str] = Counter()
    made: list[_Watched] = []

    def close() -> None:
        for device in made:
            seen.update(device.seen)
            closing(device)
            device.close()
        made.clear()

    def make(origin: int) -> RtlDevice:
        made.append(_Watched(config, library=library, limit=LIMIT, origin=origin))
        return made[-1]

    def again(origin: int) -> RtlDevice:
        """Returns the machine of the trial before: to write what one has covered takes longer than most trials."""
        if not made or origin:
            return make(origin)
        made[-1].timing = MemoryTiming()
        return made[-1]

    before = True
    for trial in some:
        if trial.fresh or before:
            close()
        before = trial.fresh
        how = trial.run(make if trial.fresh else again)
        assert not how, f"{trial.name}: {how}"
        ran[trial.kind] += 1
    close()
    return seen, ran


#: Trials between two times that what they have covered is kept.
_AT_ONCE = 16


def measure(config: NpuConfig, some: Iterable[Trial], keep: Path | None = None) -> tuple[dict[Point, int], Kept]:
    """Measures the count of each point, and all else that the trials of this run and of earlier ones have covered."""
    path, text = library(config)
    kept = Kept.of(config, keep)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "coverage.dat"

        def count(device: RtlDevice) -> None:
            device.write_coverage(file)
            add(file, kept.counts)

        for part in kept.left(some, _AT_ONCE):
            kept.seen |= run_all(config, path, part, count)[0]
            kept.trials += [trial.name for trial in part]
            if keep is not None:
                kept.write(keep)
    return read(kept.counts, text), kept


def without_constants(
    points: Mapping[Point, int], constant: Container[tuple[str, int]]
) -> tuple[dict[Point, int], int]:
    """Returns the points but for toggles of constant bits, and how many those are.

    A bit that was seen to rise and to fall stays a point, whatever is said of it: Verilator has seen that of some bits
    of words of more than 64 bits whose Verilog is `1'h1`. That a bit only rises says nothing, it begins with 0.
    """
    moved = [{(p.whole, p.bit) for p, n in points.items() if n and p.name.endswith(w)} for w in ("0->1", "1->0")]
    both = moved[0] & moved[1]
    left = {
        p: n
        for p, n in points.items()
        if p.kind != TOGGLES or (p.whole, p.bit) not in constant or (p.whole, p.bit) in both
    }
    return left, len(points) - len(left)


def summary(points: Iterable[Point], missing: set[Point], waived: set[Point]) -> dict[str, Any]:
    """Figures of lines and toggles, by kind and by unit: number of points, waived ones among them, uncovered ones."""
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
    """Figures of the functional bins of the instruction table."""
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
    """Returns the page: an overview by unit, then what is not covered."""
    lines = [
        "# Coverage of the RTL",
        "",
        *table(figures["trials"]),
        "",
        f"On `{figures['config']}`. Toggles are those of bits that can change: "
        f"{figures['constant']:,} of bits that yosys finds constant are left out.",
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
    signals = Counter(p.whole for p in missing if p.kind == TOGGLES)
    lines += [f"| `{name}` | {count} |" for name, count in signals.most_common()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
