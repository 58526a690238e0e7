"""The fit of the energy model to the truth, and its errors on machines and programs that were held back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.designs import check_designs
from calibration.energy import liberty, points, truth
from tilewright import energy
from tilewright.energy import model
from tilewright.energy.events import EVENTS
from tilewright.energy.memories import OSU018, TECHNOLOGIES, Technology
from tilewright.energy.model import PARTS, EnergyModel
from tilewright.errors import UsageError
from tilewright.fpga.bare.kept import write_measured
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import NpuConfig
from tilewright.store.files import check_writable

#: Relative standard deviations: of a point from the model, and of a coefficient from 0 in units in which each explains
#: about as much. A coefficient that the points hardly determine stays small.
_POINT_SIGMA, _COEFFICIENT_SIGMA = 0.03, 3.0


def counts_of(entry: dict[str, Any]) -> np.ndarray:
    """Returns the event counts of a stored point, [EVENTS]. Raises `UsageError` if it was written for other events."""
    try:
        return np.array([entry["events"][event] for event in EVENTS])
    except KeyError as error:
        raise UsageError(f"the stored truth does not count {error}: make energy-truth does") from None


def pj_of(entry: dict[str, Any]) -> dict[str, float]:
    """Returns the energy of a stored point in pJ, by part of the model."""
    pj = entry["pj"]
    return {"logic": pj["nets and gates"] + pj["clock"] + pj["leakage"], "memories": pj["memories"]}


def fit(entries: Sequence[dict[str, Any]], machines: dict[str, NpuConfig]) -> dict[str, dict[str, dict[str, float]]]:
    """Fits coefficients, none negative, by least squares of relative errors: by part, event and term."""
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
    """Returns the relative errors of the model's energy on the chip, with their signs, one per point."""
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
    """Returns the errors relative to the energy above that of idle cycles, as the model finds it."""
    fitted = EnergyModel(OSU018.name, coefficients, {})
    found = []
    for entry in entries:
        energy = fitted.energy(machines[entry["machine"]], counts_of(entry))
        active = energy.chip - energy.logic["cycle"] - energy.memories["cycle"]
        found.append((energy.chip - sum(pj_of(entry).values())) / active)
    return found


def calibrate(
    report: Callable[[str], object],
    machines: int = len(points.MACHINES),
    nm: float | None = None,
    path: Path | None = None,
) -> None:
    """Measures the truth on the first machines, fits the coefficients and writes the file.

    Points that the file or the cache has of the same designs and programs are not measured again.

    Args:
        report: takes a line about each point, and one about the fit.
        machines: number of machines, from the first.
        nm: feature size of the library's process in nm, for libraries that are not known.
        path: file to write, by default the shipped one, which only all machines with its own library may replace.

    Raises:
        TilewrightError: a tool or the library is missing, or a tool failed.
    """
    library = liberty.load()
    technology = technology_of(library, nm)
    path = path or model.CALIBRATION
    if path.resolve() == model.CALIBRATION.resolve() and (technology != OSU018 or machines < len(points.MACHINES)):
        raise UsageError(
            f"{path.name} is of {OSU018.name} and all machines; --output names a file for "
            f"{technology.name if technology != OSU018 else f'{machines} of them'}"
        )
    check_writable(path)
    chosen = list(points.MACHINES[:machines])
    found, entries = truth.measure_all(chosen, list(points.POINTS), library, technology, _known(path), report)
    configs = {config.name: config for config, _ in chosen}
    write(model_of(configs, found, entries, technology.name), path, report)


def _known(path: Path) -> list[dict[str, Any]]:
    """Returns the points of the file, none if there is no file. Raises `UsageError` if it is something else."""
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["points"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError):
        raise UsageError(f"{path} is there and no model of energy: name another file") from None
    return found


def technology_of(library: liberty.Library, nm: float | None) -> Technology:
    """Returns the technology that memories are scaled to. Raises `UsageError` if the library is unknown and `nm` is not
    given, or the other way round."""
    if library.name in TECHNOLOGIES:
        if nm is not None:
            raise UsageError(f"--nm is for libraries that are not known; {library.name} is")
        return TECHNOLOGIES[library.name]
    if nm is None:
        raise UsageError(f"{library.path}: --nm must say how many nm the process of {library.name} has")
    return Technology(f"{library.name} ({nm:g} nm, {library.volts:g} V)", nm, library.volts)


def model_of(
    machines: dict[str, NpuConfig],
    found: dict[str, str],
    entries: list[dict[str, Any]],
    technology: str,
) -> dict[str, Any]:
    """Returns a model as it is stored: coefficients fitted to the points that are not held back, errors on the others.

    Args:
        found: digests of the machines' designs, by name.

    Raises:
        FpgaError: there are too few points.
    """
    held = [entry for entry in entries if entry["held_back"]]
    taken = [entry for entry in entries if not entry["held_back"]]
    if not held or not taken:
        raise FpgaError("too few points: fitted and held back ones are needed")
    coefficients = fit(taken, machines)
    off = np.abs(errors(coefficients, held, machines))
    return {
        "technology": technology,
        "coefficients": coefficients,
        "error": {
            "mean": round(float(off.mean()), 4),
            "largest": round(float(off.max()), 4),
            "mean_above_idle": round(float(np.abs(above_idle(coefficients, held, machines)).mean()), 4),
        },
        "machines": {name: config.to_dict() for name, config in machines.items()},
        "designs": found,
        "points": entries,
    }


def write(made: dict[str, Any], path: Path, report: Callable[[str], object]) -> None:
    """Writes a model to a file. Raises `FpgaError` if it cannot be written."""
    write_measured(path, made)
    report(f"{path.name}: {summary(made)}")


def stored() -> dict[str, Any]:
    """Reads the shipped file: the model with its truth."""
    found: dict[str, Any] = json.loads(model.CALIBRATION.read_text(encoding="utf-8"))
    return found


def fit_again(report: Callable[[str], object]) -> None:
    """Fits the shipped truth again and writes the file. Raises `TilewrightError`."""
    before = stored()
    machines = {name: NpuConfig.from_dict(values) for name, values in before["machines"].items()}
    made = model_of(machines, before["designs"], before["points"], before["technology"])
    write(made, model.CALIBRATION, report)


def judge(config: NpuConfig, report: Callable[[str], object]) -> None:
    """Measures all programs on a machine as its RTL is today, and says how far off the shipped model is on them; stores
    nothing.

    Raises:
        TilewrightError: a tool or the library is missing, or a tool failed.
    """
    library = liberty.load()
    _, entries = truth.measure_all(
        [(config, True)], list(points.POINTS), library, technology_of(library, None), [], report
    )
    off = np.abs(errors(stored()["coefficients"], entries, {config.name: config}))
    worst = entries[int(off.argmax())]["program"]
    report(
        f"the shipped model on {config.name} as it is today: {len(entries)} programs, mean error {off.mean():.1%}, "
        f"largest {off.max():.1%} ({worst})"
    )


def check(report: Callable[[str], object]) -> None:
    """Elaborates the machines of the shipped model and compares their designs with those that were measured.

    Raises:
        UsageError: some are other designs now.
    """
    changed = check_designs(energy.load(model.CALIBRATION).measured, report)
    if changed:
        raise UsageError(
            f"other designs than those measured: {', '.join(changed)}; make energy-truth measures them anew"
        )


def summary(made: dict[str, Any]) -> str:
    """Returns a line about the errors of a stored model."""
    error, points_held = made["error"], [point for point in made["points"] if point["held_back"]]
    return (
        f"error on {len(points_held)} held-back points: mean {error['mean']:.1%}, largest {error['largest']:.1%}; "
        f"of what is above idle cycles mean {error['mean_above_idle']:.1%}"
    )
