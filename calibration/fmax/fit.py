"""Calibration of the clock model: the machines that are placed, and the fit of its coefficients."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.fmax.placement import AIM_MHZ, PLACED_ON, SEED, Placed, place, routed_mhz
from tilewright.fpga import area
from tilewright.fpga.bare import designs
from tilewright.fpga.bare.kept import write_measured
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fmax.model import FmaxModel, calibration_file, terms
from tilewright.isa.config import PRESETS, NpuConfig

_TINY, _SMALL = PRESETS["tiny"], PRESETS["small"]
#: The smallest machine, with a queue for VECTOR and more bursts in flight than the preset has.
_NANO = PRESETS["nano"].with_(vector_queue=1, read_outstanding=4, write_outstanding=2)
#: Machines that are placed, small ones first, each with whether it is held back from the fit.
POINTS: tuple[tuple[NpuConfig, bool], ...] = (
    (_TINY, False),
    (_SMALL, False),
    (_NANO, True),
    (_TINY.with_(name="bus", axi_data_bits=128, act_banks=8, queue_depth=32), True),
    (_TINY.with_(name="wider", vector_passes=2, axi_data_bits=64, queue_depth=8), True),
    (_SMALL.with_(name="lean", vector_passes=4, axi_data_bits=32, read_outstanding=4), True),
    (_TINY.with_(name="lanes", vector_passes=1), False),
    (_TINY.with_(name="long", block_in=8, axi_data_bits=64), False),
    (_SMALL.with_(name="eight lanes", vector_passes=1, axi_data_bits=128, acc_rows=512), True),
    (_TINY.with_(name="broad", block_out=8, vector_passes=2, semaphores=31), False),
    (_SMALL.with_(name="half", block_out=16, vector_passes=4, wgt_tiles=512, acc_rows=512), False),
)
#: Presets whose bitstreams give the ratio of the routed clock to the estimate after placement.
ROUTED = ("tiny",)
#: Expected delay per unit of each term in ns; most of a path is wire. They are the mean of the fit's prior, so that a
#: term that the points hardly determine keeps a sensible coefficient.
_EXPECTED = {
    "fixed": 3.0, "side of the area": 2.0, "bytes of the bus": 0.3, "lanes of VECTOR": 0.3, "products": 0.5,
}  # fmt: skip
#: Relative standard deviations: of a placement from the model, and of a coefficient from its expected value.
_POINT_SIGMA, _COEFFICIENT_SIGMA = 0.04, 1.0


@dataclass(frozen=True)
class Measured:
    """A placed machine with its clock in MHz, as nextpnr estimates it after placement."""

    config: NpuConfig
    held_back: bool
    placed_mhz: float

    @staticmethod
    def of(point: dict[str, Any]) -> Measured:
        """Reads a point of the stored file."""
        config = NpuConfig.from_dict(point["config"])
        return Measured(config, point["held_back"], point["placed_mhz"])


def fit(points: Iterable[Measured], family: str) -> dict[str, float]:
    """Fits delays in ns per unit of each term, none negative, by least squares of the period's relative errors with
    normal priors."""
    from scipy.optimize import nnls

    points = list(points)
    rows = [terms(p.config, area.estimate(p.config, family).lut) for p in points]
    expected = np.array([_EXPECTED[term] for term in rows[0]])
    period = np.array([1e3 / p.placed_mhz for p in points])
    weight = 1 / (_POINT_SIGMA * period)
    matrix = np.array([list(row.values()) for row in rows]) * expected * weight[:, None]
    prior = np.eye(len(expected)) / _COEFFICIENT_SIGMA
    right = np.concatenate([period * weight, np.ones(len(expected)) / _COEFFICIENT_SIGMA])
    solution, _ = nnls(np.vstack([matrix, prior]), right)
    return {term: round(float(value), 4) for term, value in zip(rows[0], solution * expected)}


def errors(coefficients: dict[str, float], points: Iterable[Measured], family: str) -> list[float]:
    """Returns the relative errors of the model's clock after placement, with their signs, one per point."""
    model = FmaxModel(area.load(family), coefficients, 1.0, 0.0)
    return [model.placed_mhz(p.config) / p.placed_mhz - 1 for p in points]


def calibrate(
    family: str,
    count: int,
    report: Callable[[str], object] = print,
    *,
    file: Path | None = None,
    placed: Callable[[NpuConfig, str], Placed] = place,
    routed: Callable[[NpuConfig, str], float] = routed_mhz,
) -> None:
    """Places the points one after the other, fits the coefficients and writes the family's file.

    A point that was placed before is not placed again.

    Args:
        family: FPGA family of the board whose SoC is placed.
        count: number of points, from the first.
        report: takes a line about each point, and one about the fit.
        file: the family's file; by default the one that is shipped.
        placed: places a configuration on a family.
        routed: the clock in MHz of a preset's bitstream for a board.

    Raises:
        FpgaError: the family has no flow for it, too few points could be placed, or the file cannot be written.
    """
    if family not in PLACED_ON:
        raise FpgaError(f"no placements for {family!r}; there are {', '.join(PLACED_ON)}")
    entries = []
    for number, (config, held_back) in enumerate(POINTS[:count]):
        try:
            found = placed(config, family)
        except FpgaError as error:
            report(f"left out: {error}")
            continue
        report(
            f"{number + 1} of {min(count, len(POINTS))}: {config.name} {config.block_in} x {config.block_out}: "
            f"{found.lut} LUT, {found.mhz:.1f} MHz after placement, {found.cpu_seconds:.0f} s of CPU"
        )
        point = {"design": designs.digest(config), "lut": found.lut, "placed_mhz": found.mhz}
        entries.append({"held_back": held_back, "config": config.to_dict(), **point})
    clocks = {name: routed(PRESETS[name], PLACED_ON[family]) for name in ROUTED}
    _write(file or calibration_file(family), family, entries, clocks, report)


def fit_again(family: str, report: Callable[[str], object] = print, *, file: Path | None = None) -> None:
    """Fits the stored placements, after a change of the terms or of the area model.

    Args:
        file: as for `calibrate`.

    Raises:
        FpgaError: the file cannot be read or written.
    """
    file = file or calibration_file(family)
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise FpgaError(f"cannot read {file}: {problem.strerror}") from None
    _write(file, family, stored["points"], stored["routed_mhz"], report)


def _write(
    file: Path, family: str, entries: list[dict[str, Any]], routed: dict[str, float], report: Callable[[str], object]
) -> None:
    points = [Measured.of(entry) for entry in entries]
    fitted, held = ([p for p in points if p.held_back is side] for side in (False, True))
    ratios = [math.log(routed[p.config.name] / p.placed_mhz) for p in points if p.config.name in routed]
    if not fitted or not held or not ratios:
        raise FpgaError(f"too few calibration points of {family}: fitted, held back and routed ones are needed")
    coefficients = fit(fitted, family)
    off = errors(coefficients, held, family)
    for p, error in zip(held, off):
        estimated = p.placed_mhz * (1 + error)
        report(f"held back: {p.config.name}: {p.placed_mhz:.1f} MHz, the model says {estimated:.1f} ({error:+.1%})")
    alone = [
        abs(errors(fit([other for other in fitted if other is not p], family), [p], family)[0]) for p in fitted
    ] if len(fitted) > 1 else [math.nan]  # fmt: skip
    stored = {
        "family": family,
        "board": PLACED_ON[family],
        "aim_mhz": AIM_MHZ,
        "seed": SEED,
        "coefficients": coefficients,
        "routed_mhz": routed,
        "routed": round(math.exp(float(np.mean(ratios))), 4),
        "error": round(max(map(abs, off)), 4),
        "leave_one_out_error": round(float(np.mean(alone)), 4),
        "points": entries,
    }
    write_measured(file, stored)
    report(
        f"{file.name}: largest error on {len(held)} held-back points {stored['error']:.1%}; "
        f"of fitted points left out {stored['leave_one_out_error']:.1%} on average; routing x {stored['routed']:.3f}"
    )
