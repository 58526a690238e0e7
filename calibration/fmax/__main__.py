"""`python -m calibration.fmax`: the calibration of the clock model."""

from __future__ import annotations

import click

from calibration.fmax import bitstreams, fit
from calibration.fmax.placement import PLACED_ON
from tilewright.fpga.bare.command import one_line_errors


@click.command(epilog="\b\nExamples:\n  python -m calibration.fmax\n  python -m calibration.fmax --family xc7 --fit\n")
@click.option("--family", type=click.Choice([*PLACED_ON, *bitstreams.BUILT]), default="ecp5", show_default=True)
@click.option("--fit", "again", is_flag=True, help="Fit what is stored again, without placing.")
@click.option("--points", type=click.IntRange(3), default=len(fit.POINTS), show_default=True,
              help="Calibration points.")  # fmt: skip
def main(family: str, again: bool, points: int) -> None:
    """Place the calibration points (minutes each; what is known is kept), fit the model and write it.

    Of other families than ecp5 the bitstreams of a board are built, a quarter of an hour each.
    """
    with one_line_errors():
        if family in bitstreams.BUILT:
            (bitstreams.fit_again if again else bitstreams.calibrate)(family, click.echo)
        elif again:
            fit.fit_again(family, click.echo)
        else:
            fit.calibrate(family, points, click.echo)


if __name__ == "__main__":
    main()
