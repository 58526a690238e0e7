"""Energy of an inference: a model per event, calibrated on the toggles of synthesised gates.

    python -m tilewright.energy                         errors of the model, point by point
    python -m tilewright.energy tiny                    what each event costs on a machine
    python -m tilewright.energy --truth                 synthesise, simulate, fit, write (make energy-truth)
    python -m tilewright.energy --fit                   the fit alone, from the truth in osu018.json

docs/energy.md has the method. `liberty`, `netlist`, `simulation`, `power`, `memories` and `truth` make the truth of
`points`; `events`, `model` and `calibration` the model.
"""

from __future__ import annotations

import functools
import json

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
    return EnergyModel(stored["technology"], stored["coefficients"], stored["error"], stored["sources"])
