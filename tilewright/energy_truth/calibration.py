"""Calibration of the energy model: the fit to the truth, and its errors on what was held back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fpga.bare.kept import write_measured
from fpga.bare.resources import sources_digest
from fpga.errors import FpgaError
from isa.config import NpuConfig
from tilewright.energy import model
from tilewright.energy.events import EVENTS
from tilewright.energy.memories import OSU018
from tilewright.energy.model import PARTS, EnergyModel
from tilewright.energy_truth import liberty, points, truth

#: Standard deviation of a point from the model, relative to its energy above that of idling; and how far from its first
#: fit a coefficient is expected, relative: coefficients that the points say little about stay small.
_POINT_SIGMA, _COEFFICIENT_SIGMA = 0.03, 3.0


def counts_of(entry: dict[str, Any]) -> np.ndarray:
    """Events of a point of the truth, [EVENTS]."""
    return np.array([entry["events"][event] for event in EVENTS])


def pj_of(entry: dict[str, Any]) -> dict[str, float]:
    """Energy of a point of the truth by part of the model."""
    pj = entry["pj"]
    return {"logic": pj["nets and gates"] + pj["clock"] + pj["leakage"], "memories": pj["memories"]}


def fit(entries: Sequence[dict[str, Any]], machines: dict[str, NpuConfig]) -> dict[str, dict[str, dict[str, float]]]:
    """Coefficients, none negative, of least squared relative errors."""
    from scipy.optimize import nnls

    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in PARTS:
        rows = np.array([model.row(part, machines[entry["machine"]], counts_of(entry)) for entry in entries])
        right = np.array([pj_of(entry)[part] for entry in entries])
        # Errors are relative to all energy on the chip: a memory that hardly matters need not be exact.
        weight = 1 / np.array([sum(pj_of(entry).values()) for entry in entries])
        # In units in which every coefficient explains about as much; the lower half keeps idle ones from growing.
        scale = 1 / np.maximum((rows * weight[:, None]).max(axis=0), 1e-12)
        matrix = rows * weight[:, None] * scale
        prior = np.eye(len(scale)) * _POINT_SIGMA / _COEFFICIENT_SIGMA
        solution, _ = nnls(np.vstack([matrix, prior]), np.concatenate([right * weight, np.zeros(len(scale))]))
        found[part] = {event: {} for event in EVENTS}
        for (event, term), value in zip(model.names(part), solution * scale):
            found[part][event][term] = float(f"{value:.5g}")
    return found


def errors(
    coefficients: dict[str, dict[str, dict[str, float]]],
    entries: Iterable[dict[str, Any]],
    machines: dict[str, NpuConfig],
) -> list[float]:
    """Relative errors of the model in the energy on the chip, with their signs."""
    fitted = EnergyModel(OSU018.name, coefficients, {})
    return [
        fitted.energy(machines[entry["machine"]], counts_of(entry)).chip / sum(pj_of(entry).values()) - 1
        for entry in entries
    ]


def above_idle(
    coefficients: dict[str, dict[str, dict[str, float]]],
    entries: Iterable[dict[str, Any]],
    machines: dict[str, NpuConfig],
) -> list[float]:
    """Errors as `errors`, relative to what the model finds above the energy of idle cycles."""
    fitted = EnergyModel(OSU018.name, coefficients, {})
    found = []
    for entry in entries:
        energy = fitted.energy(machines[entry["machine"]], counts_of(entry))
        active = energy.chip - energy.logic["cycle"] - energy.memories["cycle"]
        found.append((energy.chip - sum(pj_of(entry).values())) / active)
    return found


def calibrate(say: Callable[[str], object], machines: int = len(points.MACHINES)) -> None:
    """Measures the truth of the first machines (what is known from before takes no time), fits, writes the file.

    Raises:
        TilewrightError: a tool or the library is missing, or a tool failed.
    """
    chosen = list(points.MACHINES[:machines])
    entries = truth.measure_all(chosen, list(points.POINTS), liberty.load(), say)
    write({config.name: config for config, _ in chosen}, entries, sources_digest(), say)


def write(
    machines: dict[str, NpuConfig], entries: list[dict[str, Any]], sources: str, say: Callable[[str], object]
) -> None:
    """Fits what is not held back and writes the file. Raises `FpgaError` where it cannot."""
    held = [entry for entry in entries if entry["held_back"]]
    fitted = [entry for entry in entries if not entry["held_back"]]
    if not held or not fitted:
        raise FpgaError("too few points: fitted and held back ones are needed")
    coefficients = fit(fitted, machines)
    off = np.abs(errors(coefficients, held, machines))
    stored = {
        "technology": OSU018.name,
        "sources": sources,
        "coefficients": coefficients,
        "error": {
            "mean": round(float(off.mean()), 4),
            "largest": round(float(off.max()), 4),
            "mean_above_idle": round(float(np.abs(above_idle(coefficients, held, machines)).mean()), 4),
        },
        "machines": {name: config.to_dict() for name, config in machines.items()},
        "points": entries,
    }
    path = model.calibration_file()
    write_measured(path, stored)
    say(f"{path.name}: {summary(stored)}")


def summary(stored: dict[str, Any]) -> str:
    """A line on the errors of a stored model."""
    error, points_held = stored["error"], [point for point in stored["points"] if point["held_back"]]
    return (
        f"error on {len(points_held)} held-back points: mean {error['mean']:.1%}, largest {error['largest']:.1%}; "
        f"of what is above idle cycles mean {error['mean_above_idle']:.1%}"
    )
