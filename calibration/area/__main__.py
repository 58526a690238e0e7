"""`python -m calibration.area`: the calibration of the area model."""

from __future__ import annotations

import click

from calibration.area import fit
from tilewright.fpga.bare.command import one_line_errors
from tilewright.fpga.bare.resources import FAMILIES

#: Number of calibration points that the shipped models are made of.
POINTS = 14


@click.command(epilog="\b\nExamples:\n  python -m calibration.area --family ecp5\n")
@click.option("--family", type=click.Choice(list(FAMILIES)), default="ecp5", show_default=True)
@click.option("--points", type=click.IntRange(8), default=POINTS, show_default=True, help="Calibration points.")
def main(family: str, points: int) -> None:
    """Synthesise the calibration points (about 20 minutes; what is known is kept), fit the model and write it."""
    with one_line_errors():
        fit.calibrate(family, points, click.echo)


if __name__ == "__main__":
    main()
