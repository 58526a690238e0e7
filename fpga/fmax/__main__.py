"""`python -m tilewright.fpga.fmax`: the clock that the model estimates for a configuration."""

from __future__ import annotations

import click

from tilewright.fpga import fmax
from tilewright.fpga.bare.command import one_line_errors
from tilewright.isa.config import NpuConfig


@click.command(epilog="\b\nExamples:\n  python -m tilewright.fpga.fmax base\n")
@click.argument("config", required=False)
@click.option("--family", type=click.Choice(fmax.calibrated()), default="ecp5", show_default=True)
def main(config: str | None, family: str) -> None:
    """Estimate the clock of CONFIG (a preset or file) by the calibrated model of an FPGA family."""
    with one_line_errors():
        model = fmax.load(family)
        click.echo(f"largest error on held-back points: {model.error:.1%}")
        if config is not None:
            found = NpuConfig.load(config)
            click.echo(f"after placement: {model.placed_mhz(found):.1f} MHz\nafter routing: {model.mhz(found):.1f} MHz")
            if sizes := model.beyond(found):
                click.echo(f"extrapolated, the calibration has no: {', '.join(sizes)}")


if __name__ == "__main__":
    main()
