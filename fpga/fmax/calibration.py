"""Calibration of the model of the clock: which machines are placed, and the fit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.store import write_atomically
from fpga import area
from fpga.bare.resources import sources_digest
from fpga.errors import FpgaError
from fpga.fmax.model import FmaxModel, calibration_file, terms
from fpga.fmax.placement import AIM_MHZ, PLACED_ON, place
from isa.config import PRESETS, NpuConfig

SEEDS = (1, 2)
_TINY, _SMALL = PRESETS["tiny"], PRESETS["small"]
#: What is placed, small machines first: configuration, whether it is held back from the fit, whether it is also routed.
POINTS: tuple[tuple[NpuConfig, bool, bool], ...] = (
    (_TINY, False, True),
    (PRESETS["nano"], False, True),
    (_TINY.with_(name="wider", vector_passes=2, axi_data_bits=64, queue_depth=8), True, False),
    (_SMALL, False, False),
    (_TINY.with_(name="wide", vector_passes=1, axi_data_bits=128, act_banks=8), False, False),
    (_SMALL.with_(name="lean", vector_passes=4, axi_data_bits=32, read_outstanding=4), True, False),
    (_TINY.with_(name="long", block_in=8, axi_data_bits=64), False, False),
    (_SMALL.with_(name="eight lanes", vector_passes=1, axi_data_bits=128, acc_rows=512), True, False),
    (_TINY.with_(name="broad", block_out=8, vector_passes=1, semaphores=31, queue_depth=32), False, False),
    (_SMALL.with_(name="half", block_out=16, vector_passes=4, wgt_tiles=512, acc_rows=512), False, False),
)
#: ns that one of each term is expected to take. The fit starts from these, so that what the points say little about
#: stays sensible.
_EXPECTED = {
    "fixed": 8.0, "side of the area": 0.3, "bytes of the bus": 0.1, "lanes of VECTOR": 0.1, "products": 0.1,
}  # fmt: skip
#: Standard deviations, relative: of a placement from the model, and of a coefficient from what is expected.
_POINT_SIGMA, _COEFFICIENT_SIGMA = 0.04, 1.0


@dataclass(frozen=True)
class Measured:
    """A placed point: MHz by the estimate, and after routing."""

    config: NpuConfig
    held_back: bool
    placed_mhz: float
    routed_mhz: float | None

    @staticmethod
    def of(point: dict[str, Any]) -> Measured:
        """A point of the stored file."""
        config = NpuConfig.from_dict(point["config"])
        return Measured(config, point["held_back"], point["mhz"], point["routed_mhz"])


def fit(points: Iterable[Measured], family: str) -> dict[str, float]:
    """The likeliest coefficients, none negative: least squares of relative errors of the period, with normal priors."""
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
    """Of the model's clock after placement, relative."""
    model = FmaxModel(area.load(family), coefficients, 1.0, 0.0)
    return [model.placed_mhz(p.config) / p.placed_mhz - 1 for p in points]


def calibrate(family: str, count: int, say: Callable[[str], object] = print) -> None:
    """Places the points one after the other (those known from before take no time), fits, writes the file.

    Args:
        count: of the points, from the first.

    Raises:
        FpgaError: the family has no flow for it, no point could be placed, or the file cannot be written.
    """
    if family not in PLACED_ON:
        raise FpgaError(f"no placements for {family!r}; there are {', '.join(PLACED_ON)}")
    entries = []
    for number, (config, held_back, route) in enumerate(POINTS[:count]):
        try:
            found = place(config, family, SEEDS, route)
        except FpgaError as error:
            say(f"left out: {error}")
            continue
        clocks = ", ".join(f"{mhz:.1f}" for mhz in found.placed_mhz)
        routed = f", {found.routed_mhz:.1f} after routing" if found.routed_mhz is not None else ""
        say(
            f"{number + 1} of {min(count, len(POINTS))}: {config.name} {config.block_in} x {config.block_out}: "
            f"{found.lut} LUT, {clocks} MHz after placement{routed}, {found.cpu_seconds:.0f} s of CPU"
        )
        entries.append(
            {
                "held_back": held_back,
                "config": config.to_dict(),
                "lut": found.lut,
                "placed_mhz": found.placed_mhz,
                "mhz": round(found.mhz, 2),
                "routed_mhz": found.routed_mhz,
            }
        )
    _write(family, entries, sources_digest(), say)


def fit_again(family: str, say: Callable[[str], object] = print) -> None:
    """Fits the stored placements, after a change of the terms or of the area model. Raises `FpgaError`."""
    try:
        stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    except OSError as problem:
        raise FpgaError(f"cannot read {calibration_file(family)}: {problem.strerror}") from None
    _write(family, stored["points"], stored["sources"], say)


def _write(family: str, entries: list[dict[str, Any]], sources: str, say: Callable[[str], object]) -> None:
    points = [Measured.of(entry) for entry in entries]
    fitted, held = ([p for p in points if p.held_back is side] for side in (False, True))
    ratios = [math.log(p.routed_mhz / entry["placed_mhz"][0]) for p, entry in zip(points, entries) if p.routed_mhz]
    if not fitted or not held or not ratios:
        raise FpgaError(f"too few calibration points of {family}: fitted, held back and routed ones are needed")
    coefficients = fit(fitted, family)
    off = errors(coefficients, held, family)
    for p, error in zip(held, off):
        said = p.placed_mhz * (1 + error)
        say(f"held back: {p.config.name}: {p.placed_mhz:.1f} MHz, the model says {said:.1f} ({error:+.1%})")
    alone = [
        abs(errors(fit([other for other in fitted if other is not p], family), [p], family)[0]) for p in fitted
    ] if len(fitted) > 1 else [math.nan]  # fmt: skip
    stored = {
        "family": family,
        "board": PLACED_ON[family],
        "aim_mhz": AIM_MHZ,
        "seeds": SEEDS,
        "sources": sources,
        "coefficients": coefficients,
        "routed": round(math.exp(float(np.mean(ratios))), 4),
        "error": round(max(map(abs, off)), 4),
        "leave_one_out_error": round(float(np.mean(alone)), 4),
        "points": entries,
    }
    path = calibration_file(family)
    try:
        write_atomically(path, json.dumps(stored, indent=1) + "\n")
    except OSError as problem:
        raise FpgaError(f"cannot write {path}: {problem.strerror}") from None
    say(
        f"{path.name}: largest error on {len(held)} held-back points {stored['error']:.1%}; "
        f"of fitted points left out {stored['leave_one_out_error']:.1%} on average; routing x {stored['routed']:.3f}"
    )
