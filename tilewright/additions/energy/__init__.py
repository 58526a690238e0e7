"""Energy of an inference: a model per event, calibrated on the toggles of synthesised gates.

The core uses it as a `tilewright.runtime.energy.Meter`. `events` counts what a program makes happen, `model` says what
that costs with the coefficients of osu018.json, `memories` has what no cell library has, and `tables` prints it.
`calibration.energy` makes the truth and the coefficients; the method is in docs/verification/energy.md.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from tilewright.energy.events import EVENTS, of_program, per_instruction, total
from tilewright.energy.model import CALIBRATION, Energy, EnergyModel
from tilewright.errors import UsageError
from tilewright.isa.config import ConfigError, NpuConfig

__all__ = ["EVENTS", "Energy", "EnergyModel", "load", "of_program", "path", "per_instruction", "total"]


def path() -> Path:
    """Path of the energy model: $TILEWRIGHT_ENERGY, or the calibration that is shipped."""
    return Path(os.environ.get("TILEWRIGHT_ENERGY") or CALIBRATION)


def load(file: Path | None = None) -> EnergyModel:
    """The calibrated model of the file, by default that of `path`.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    return _load(file or path())


@functools.cache
def _load(file: Path) -> EnergyModel:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        machines = tuple(NpuConfig.from_dict(fields) for fields in stored["machines"].values())
        found = EnergyModel(
            technology=stored["technology"], coefficients=stored["coefficients"], error=stored["error"],
            machines=machines, designs=stored["designs"],
        )  # fmt: skip
        found.costs(NpuConfig())  # says whether all coefficients are there
    except OSError as error:
        raise UsageError(f"no energy model {file}: {error.strerror}; make energy-truth makes it") from None
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise UsageError(f"{file} is no energy model of this version of Tilewright: {error!r}") from None
    return found
