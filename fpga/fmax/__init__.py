"""Clock of a configuration without placing it: a sum of delays, calibrated on placements by nextpnr.

    python -m tilewright.fpga.fmax base                    print the estimate

The terms are in `tilewright.fpga.fmax.model`. Their coefficients, none negative, are fitted to the placements in
`fpga/fmax/FAMILY.json`, which also holds the error on points that were not used. A family that cannot be placed in
minutes has the delays of another one, times what its bitstreams say. `python -m calibration.fmax` in a checkout
measures and fits anew.
"""

from __future__ import annotations

import functools
import json

from tilewright.fpga import area
from tilewright.fpga.bare.designs import stamped
from tilewright.fpga.bare.resources import FAMILIES
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fmax.model import FmaxModel, calibration_file


def calibrated() -> list[str]:
    """Families with a model."""
    return [name for name in FAMILIES if calibration_file(name).is_file()]


@functools.cache
def load(family: str) -> FmaxModel:
    """The calibrated model. Raises `FpgaError` if there is none for the family."""
    try:
        stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    except OSError:
        known = ", ".join(calibrated()) or "none"
        raise FpgaError(f"no model of the clock for {family!r}; there are {known}") from None
    whose = load(stored["delays_of"]) if "delays_of" in stored else None
    return FmaxModel(
        area=area.load(family) if whose is None else whose.area,
        coefficients=stored["coefficients"] if whose is None else whose.coefficients,
        routed=stored["routed"],
        error=stored["error"],
        designs=stamped(stored["points"]),
        family=family,
    )
