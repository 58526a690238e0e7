"""`python -m tilewright.fpga.fmax`: what the model of the clock says, and its calibration."""

from __future__ import annotations

import click

from calibration.fmax import fit as calibration
from calibration.fmax.placement import PLACED_ON
from tilewright.fpga import fmax
from tilewright.isa.config import NpuConfig


@click.command(
    epilog="\b\nExamples:\n  python -m tilewright.fpga.fmax base\n  python -m tilewright.fpga.fmax --calibrate\n"
)
@click.argument("config", required=False)
@click.option("--family", type=click.Choice(list(PLACED_ON)), default="ecp5", show_default=True)
@click.option("--calibrate", is_flag=True, help="Place the calibration points (minutes each, kept) and fit.")
@click.option("--fit", "fit", is_flag=True, help="Fit the stored placements again.")
@click.option("--points", type=click.IntRange(3), default=len(calibration.POINTS), show_default=True,
              help="Calibration points.")  # fmt: skip
def main(config: str | None, family: str, calibrate: bool, fit: bool, points: int) -> None:
    """Estimate the clock of CONFIG (a preset or file), or calibrate the model."""
    if calibrate:
        calibration.calibrate(family, points, click.echo)
    elif fit:
        calibration.fit_again(family, click.echo)
    fmax.load.cache_clear()
    model = fmax.load(family)
    if not calibrate and not fit:
        click.echo(f"largest error on held-back points: {model.error:.1%}")
    if config is not None:
        found = NpuConfig.load(config)
        click.echo(f"after placement: {model.placed_mhz(found):.1f} MHz\nafter routing: {model.mhz(found):.1f} MHz")


if __name__ == "__main__":
    main()
