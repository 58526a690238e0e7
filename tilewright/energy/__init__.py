"""Energy of an inference: a model per event, calibrated on the toggles of synthesised gates.

`events` counts what a program makes happen, `model` says what that costs with the coefficients of osu018.json, and
`memories` has what no cell library has. `tilewright.energy_truth` makes the truth and the coefficients; docs/energy.md
has the method.
"""

from __future__ import annotations

import functools
import json

from isa.config import NpuConfig
from tilewright.energy.model import Energy, EnergyModel, calibration_file
from tilewright.errors import UsageError

__all__ = ["Energy", "EnergyModel", "load"]


@functools.cache
def load(technology: str = "osu018") -> EnergyModel:
    """The calibrated model. Raises `UsageError` if there is none for the technology."""
    try:
        stored = json.loads(calibration_file(technology).read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(f"no energy model for {technology!r}; make it by: make energy-truth") from None
    machines = tuple(NpuConfig.from_dict(fields) for fields in stored["machines"].values())
    return EnergyModel(stored["technology"], stored["coefficients"], stored["error"], stored["sources"], machines)
