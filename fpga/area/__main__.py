"""`python -m tilewright.fpga.area`: what the area model says, and its calibration."""

from __future__ import annotations

from typing import Any

import click

from calibration.area.fit import calibrate as run_calibration
from tilewright.fpga import area
from tilewright.fpga.area.model import COUNTS
from tilewright.fpga.bare.resources import FAMILIES
from tilewright.isa.config import NpuConfig

#: Calibration points.
POINTS = 14


@click.command(
    epilog="\b\nExamples:\n  python -m tilewright.fpga.area base\n"
    "  python -m tilewright.fpga.area --calibrate --family ecp5\n"
)
@click.argument("config", required=False)
@click.option("--family", type=click.Choice(list(FAMILIES)), default="ecp5", show_default=True)
@click.option("--calibrate", is_flag=True, help="Synthesise the calibration points (about 20 minutes) and fit.")
@click.option("--points", type=click.IntRange(8), default=POINTS, show_default=True, help="Calibration points.")
def main(config: str | None, family: str, calibrate: bool, points: int) -> None:
    """Estimate the area of CONFIG (a preset or file), or calibrate the model."""
    if calibrate:
        run_calibration(family, points, click.echo)
        area.load.cache_clear()
    model = area.load(family)
    shown: dict[str, Any] = {"largest error on held-back points": {k: f"{v:.1%}" for k, v in model.error.items()}}
    if config is not None:
        found = model.estimate(NpuConfig.load(config))
        shown |= {count: getattr(found, count) for count in COUNTS}
    for name, value in shown.items():
        click.echo(f"{name}: {value}")


if __name__ == "__main__":
    main()
