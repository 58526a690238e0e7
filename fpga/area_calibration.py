"""Calibration of the area model: which points are synthesised, and the fit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from fpga.area import COUNTS, calibration_file, terms
from fpga.resources import Resources, SynthesisError, sources_digest, synthesise
from isa.config import PRESETS, ConfigError, NpuConfig

#: (block_in, block_out) of the points: small ones, because every term is linear and large ones take an hour each.
_FITTED = (
    (4, 4), (8, 8), (4, 8), (8, 4), (4, 4), (16, 4), (4, 16), (4, 4), (8, 8), (4, 8), (8, 4), (4, 4), (16, 8), (8, 16),
    (4, 4), (4, 8), (8, 4), (4, 4), (8, 8), (4, 4),
)  # fmt: skip
_HELD_BACK = ((4, 4), (8, 4), (4, 8), (8, 8))
_CHOICES = {
    "act_rows": (512, 1024, 2048, 4096, 8192),
    "act_banks": (2, 4, 8),
    "wgt_tiles": (64, 128, 256, 512, 1024),
    "acc_rows": (64, 128, 256, 512, 1024),
    "prm_rows": (16, 32, 64, 128),
    "lut_tables": (1, 2, 4, 8),
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


def points() -> tuple[list[NpuConfig], list[NpuConfig]]:
    """The points fitted and those held back, always the same."""
    rng = random.Random(1)

    def draw(shape: tuple[int, int], name: str) -> NpuConfig:
        while True:
            fields = {field: rng.choice(values) for field, values in _CHOICES.items()}
            try:
                return NpuConfig(name=name, block_in=shape[0], block_out=shape[1], **fields)
            except ConfigError:
                continue

    held = [draw(shape, f"held{n}") for n, shape in enumerate(_HELD_BACK)]
    fitted = [draw(shape, f"point{n}") for n, shape in enumerate(_FITTED)]
    return [PRESETS["tiny"], *fitted], [*held, PRESETS["small"]]


def fit(configs: list[NpuConfig], counts: list[Resources], family: str) -> dict[str, dict[str, float]]:
    """Coefficients of least relative error, none negative."""
    from scipy.optimize import nnls

    found = {}
    for count in COUNTS:
        rows = [terms(c, family)[count] for c in configs]
        measured = np.array([getattr(r, count) for r in counts], float)
        scale = 1 / np.maximum(measured, 1)
        matrix = np.array([list(row.values()) for row in rows]) * scale[:, None]
        size = np.maximum(np.abs(matrix).max(axis=0), 1e-12)  # columns of like size: nnls is not scale-free
        solution, _ = nnls(matrix / size, measured * scale)
        found[count] = {term: round(float(value), 4) for term, value in zip(rows[0], solution / size)}
    return found


def errors(
    coefficients: dict[str, dict[str, float]], configs: list[NpuConfig], counts: list[Resources], family: str
) -> dict[str, list[float]]:
    """Relative errors per resource and point."""
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    for config, measured in zip(configs, counts):
        for count, values in terms(config, family).items():
            said = sum(coefficients[count][term] * value for term, value in values.items())
            found[count].append(abs(said - getattr(measured, count)) / max(1, getattr(measured, count)))
    return found


def calibrate(family: str, count: int, say: Callable[[str], object] = print) -> None:
    """Synthesises the points one after the other (those known from before take no time), fits, writes the file.

    Args:
        count: points to fit, at most those there are; the quicker calibration with fewer is less exact.

    Raises:
        SynthesisError: no point could be synthesised, or the file cannot be written.
    """
    fitted, held = points()
    entries: list[dict[str, Any]] = []
    measured: dict[bool, tuple[list[NpuConfig], list[Resources]]] = {False: ([], []), True: ([], [])}
    chosen = [(c, False) for c in fitted[:count]] + [(c, True) for c in held]
    for number, (config, held_back) in enumerate(chosen):
        try:
            found = synthesise(config, family)
        except SynthesisError as error:
            say(f"left out: {error}")
            continue
        say(
            f"{number + 1} of {len(chosen)}: {config.name} {config.block_in} x {config.block_out}: "
            f"{found.lut} LUT, {found.ff} FF, {found.dsp} DSP, {found.bram} BRAM, {found.seconds:.0f} s"
        )
        measured[held_back][0].append(config)
        measured[held_back][1].append(found)
        counts = {count: getattr(found, count) for count in COUNTS}
        entries.append({"held_back": held_back, "config": config.to_dict(), **counts})
    if not measured[False][0] or not measured[True][0]:
        raise SynthesisError(f"no calibration point of {family} could be synthesised")
    coefficients = fit(*measured[False], family)
    error = errors(coefficients, *measured[True], family)
    left_out = _leave_one_out(*measured[False], family)
    stored = {
        "family": family,
        "sources": sources_digest(),
        "coefficients": coefficients,
        "error": {count: round(max(values), 4) for count, values in error.items()},
        "mean_error": {count: round(float(np.mean(values)), 4) for count, values in error.items()},
        "leave_one_out_error": left_out,
        "points": entries,
    }
    path = calibration_file(family)
    try:
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        raise SynthesisError(f"cannot write {path}: {problem.strerror}") from None
    say(f"{path.name}: largest error on {len(measured[True][0])} held-back points {stored['error']}")


def _leave_one_out(configs: list[NpuConfig], counts: list[Resources], family: str) -> dict[str, float]:
    """Mean relative error of each fitted point by a fit without it."""
    found: dict[str, list[float]] = {count: [] for count in COUNTS}
    for n in range(len(configs)):
        others = [i for i in range(len(configs)) if i != n]
        coefficients = fit([configs[i] for i in others], [counts[i] for i in others], family)
        for count, values in errors(coefficients, [configs[n]], [counts[n]], family).items():
            found[count] += values
    return {count: round(float(np.mean(values)), 4) for count, values in found.items()}
