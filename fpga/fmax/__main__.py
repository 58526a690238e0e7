"""`python -m tilewright.fpga.fmax`: the clock that the model estimates for a configuration."""

from __future__ import annotations

import click

from tilewright.fpga import fmax
from tilewright.fpga.bare.command import chosen_family, one_line_errors
from tilewright.isa.config import NpuConfig


@click.command(
    epilog="\b\nExamples:\n  python -m tilewright.fpga.fmax base\n"
    "  python -m tilewright.fpga.fmax wide --board pynq_z2\n"
)
@click.argument("config", required=False)
@click.option("--family", type=click.Choice(fmax.calibrated()), help="ecp5 by default.")
@click.option("--board", metavar="NAME", help="Board whose family counts.")
def main(config: str | None, family: str | None, board: str | None) -> None:
    """Estimate the clock of CONFIG (a preset or file) by the calibrated model of an FPGA family."""
    with one_line_errors():
        model = fmax.load(chosen_family(family, board))
        click.echo(model.evidence)
        if config is not None:
            found = NpuConfig.load(config)
            if model.family == model.area.family:  # else it is the estimate of another family
                click.echo(f"after placement: {model.placed_mhz(found):.1f} MHz")
            click.echo(f"after routing: {model.mhz(found):.1f} MHz")
            if sizes := model.beyond(found):
                click.echo(f"extrapolated, the calibration has no: {', '.join(sizes)}")


if __name__ == "__main__":
    main()
