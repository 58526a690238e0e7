"""`python -m calibration.area`: the calibration of the area model."""

from __future__ import annotations

import click

from calibration.area import fit
from tilewright.fpga.bare.command import one_line_errors
from tilewright.fpga.bare.resources import FAMILIES


@click.command(epilog="\b\nExamples:\n  python -m calibration.area --family xc7\n  python -m calibration.area --fit\n")
@click.option("--family", type=click.Choice(list(FAMILIES)), default="ecp5", show_default=True)
@click.option("--points", type=click.IntRange(8), help="Calibration points; by default all.")
@click.option("--fit", "again", is_flag=True, help="Fit what is stored again, without synthesis.")
def main(family: str, points: int | None, again: bool) -> None:
    """Synthesise the calibration points (half an hour of CPU; what is known is kept), fit the model and write it."""
    with one_line_errors():
        fit.calibrate(family, points, click.echo, keep=again)


if __name__ == "__main__":
    main()
