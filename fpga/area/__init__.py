"""Area of a configuration without synthesis: a sum of terms for the cells of each part, calibrated on Yosys runs.

    python -m tilewright.fpga.area base                    print the estimate

The terms are in `tilewright.fpga.area.model`. Their coefficients are those of least relative error, none negative, over
the synthesised points in `fpga/area/FAMILY.json`, which also holds the error on points that were not used. A change of
the RTL needs a new calibration, `python -m calibration.area` in a checkout.
"""

from __future__ import annotations

import functools
import json

from tilewright.fpga.area.model import AreaModel, calibration_file
from tilewright.fpga.bare.designs import stamped
from tilewright.fpga.bare.resources import FAMILIES, Resources, family_named
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import NpuConfig


def calibrated() -> list[str]:
    """Families with a model."""
    return [name for name in FAMILIES if calibration_file(name).is_file()]


@functools.cache
def load(family: str) -> AreaModel:
    """The calibrated model. Raises `FpgaError` if the family is unknown or was never calibrated."""
    family_named(family)
    try:
        stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    except OSError:
        known = ", ".join(calibrated()) or "none"
        raise FpgaError(
            f"no area model for {family!r} (there are {known}); in a checkout this makes one: "
            f"python -m calibration.area --family {family}"
        ) from None
    return AreaModel(family, stored["coefficients"], stored["error"], stamped(stored["points"]))


def estimate(config: NpuConfig, family: str = "ecp5") -> Resources:
    """`load(family).estimate(config)`."""
    return load(family).estimate(config)
