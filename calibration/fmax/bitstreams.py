"""Clocks of families that take too long to be placed for every point: another family's delays, times what the
bitstreams of boards say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from calibration.fmax.placement import routed_mhz
from tilewright.fpga import fmax
from tilewright.fpga.bare import designs
from tilewright.fpga.bare.kept import read_json, write_measured
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fmax.model import calibration_file
from tilewright.isa.config import PRESETS, NpuConfig

#: The family whose delays the others take.
DELAYS_OF = "ecp5"
#: Bitstreams by family: board, preset, what differs from it, and whether it is held back from the fit.
BUILT: dict[str, tuple[tuple[str, str, dict[str, int], bool], ...]] = {
    "xc7": (
        ("pynq_z2", "pynq", {}, False),
        ("nexys_a7_100t", "tiny", {}, False),
        ("pynq_z2", "wide", {}, True),
        ("arty_a7_100t", "wide", {}, True),
    ),
    "gowin": (("tang_nano_20k", "nano", {}, False), ("tang_nano_20k", "nano", {"depthwise": 0}, True)),
}
#: Placements of each machine, of seeds that follow each other; one where the family is not named. A machine's clock is
#: their geometric mean, of those that are fitted and of those held back.
PLACEMENTS = {"gowin": 2}


def calibrate(
    family: str,
    report: Callable[[str], object] = print,
    *,
    file: Path | None = None,
    routed: Callable[[NpuConfig, str, int], float] = routed_mhz,
    digest: Callable[[NpuConfig], str] = designs.digest,
) -> None:
    """Builds the bitstreams of a family, a quarter of an hour for each placement not in the file, and writes it.

    Args:
        family: one of `BUILT`.
        report: takes a line about each bitstream, and one about the fit.
        file: the family's file; by default the one that is shipped.
        routed: the clock in MHz of a preset's bitstream for a board, by what is added to the seed of its point.
        digest: the digest of a configuration's design.

    Raises:
        FpgaError: a build failed, or the file cannot be written.
    """
    file = file or calibration_file(family)
    known = {(p["board"], p["design"]): p["routed_mhz"] for p in (read_json(file) or {"points": []})["points"]}
    entries = []
    for board, name, changes, held_back in BUILT[family]:
        config = PRESETS[name].with_(**changes)
        design = digest(config)
        clocks = known.get((board, design), [])
        clocks += [routed(config, board, more) for more in range(len(clocks), PLACEMENTS.get(family, 1))]
        entries.append({"board": board, "held_back": held_back, "config": config.to_dict(), "design": design,
                        "routed_mhz": clocks})  # fmt: skip
    _write(file, family, entries, report)


def fit_again(family: str, report: Callable[[str], object] = print, *, file: Path | None = None) -> None:
    """Fits the stored bitstreams, after a change of the other family's model. Raises `FpgaError` as `calibrate`."""
    file = file or calibration_file(family)
    stored = read_json(file)
    if stored is None:
        raise FpgaError(f"cannot read {file}")
    _write(file, family, stored["points"], report)


def _write(file: Path, family: str, entries: list[dict[str, Any]], report: Callable[[str], object]) -> None:
    """Fits and writes entries, whose `routed_mhz` has a clock for each placement of the machine."""
    model = fmax.load(DELAYS_OF)
    placed = [model.placed_mhz(NpuConfig.from_dict(entry["config"])) for entry in entries]
    clocks = [geometric_mean(entry["routed_mhz"]) for entry in entries]
    routed = geometric_mean([clock / mhz for e, clock, mhz in zip(entries, clocks, placed) if not e["held_back"]])
    held = []
    for entry, clock, mhz in zip(entries, clocks, placed):
        error = mhz * routed / clock - 1
        side, name = "held back" if entry["held_back"] else "fitted", entry["config"]["name"]
        said = ", ".join(f"{one:.1f}" for one in entry["routed_mhz"])
        report(f"{side}: {name} on {entry['board']}: {said} MHz, the mean {clock:.1f}, the model {error:+.1%}")
        held += [abs(error)] * entry["held_back"]
    stored = {
        "family": family,
        "delays_of": DELAYS_OF,
        "routed": round(routed, 4),
        "error": round(max(held), 4) if held else None,
        "points": entries,
    }
    write_measured(file, stored)
    report(f"{file.name}: {routed / model.routed:.3f} of the clock of {DELAYS_OF}; {len(held)} held back")
