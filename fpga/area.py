"""Area of a configuration without synthesis: a sum of terms that say where the cells are, calibrated on Yosys runs.

    python -m fpga.area base                    what the model says
    python -m fpga.area --calibrate             synthesise the calibration points, fit, write area_FAMILY.json

The terms are in `fpga.area_model`. Their coefficients are those of least relative error, none negative, over the
synthesised points in `area_FAMILY.json`, which also holds the error on points that were not used. A change of the RTL
needs a new calibration; `tests/unit/fpga/test_area.py` notices.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import click

from fpga.area_calibration import calibrate as run_calibration
from fpga.area_model import COUNTS, AreaModel, calibration_file
from fpga.errors import FpgaError
from fpga.resources import FAMILIES, Resources, family_named
from isa.config import NpuConfig

#: Calibration points.
POINTS = 12


@functools.cache
def load(family: str) -> AreaModel:
    """The calibrated model. Raises `FpgaError` if the family is unknown or was never calibrated."""
    family_named(family)
    try:
        stored = json.loads(calibration_file(family).read_text(encoding="utf-8"))
    except OSError:
        known = ", ".join(name for name in FAMILIES if calibration_file(name).is_file()) or "none"
        raise FpgaError(
            f"no area model for {family!r} (there are {known}); make it by: "
            f"python -m fpga.area --calibrate --family {family}"
        ) from None
    return AreaModel(family, stored["coefficients"], stored["error"], stored["sources"])


def estimate(config: NpuConfig, family: str = "ecp5") -> Resources:
    """`load(family).estimate(config)`."""
    return load(family).estimate(config)


@click.command(epilog="\b\nExamples:\n  python -m fpga.area base\n  python -m fpga.area --calibrate --family ecp5\n")
@click.argument("config", required=False)
@click.option("--family", type=click.Choice(list(FAMILIES)), default="ecp5", show_default=True)
@click.option("--calibrate", is_flag=True, help="Synthesise the calibration points (about 20 minutes) and fit.")
@click.option("--points", type=click.IntRange(8), default=POINTS, show_default=True, help="Calibration points.")
def main(config: str | None, family: str, calibrate: bool, points: int) -> None:
    """Estimate the area of CONFIG (a preset or file), or calibrate the model."""
    if calibrate:
        run_calibration(family, points, click.echo)
        load.cache_clear()
    model = load(family)
    shown: dict[str, Any] = {"largest error on held-back points": {k: f"{v:.1%}" for k, v in model.error.items()}}
    if config is not None:
        found = model.estimate(NpuConfig.load(config))
        shown |= {count: getattr(found, count) for count in COUNTS}
    for name, value in shown.items():
        click.echo(f"{name}: {value}")


if __name__ == "__main__":
    main()
