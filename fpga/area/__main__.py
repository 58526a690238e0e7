"""`python -m tilewright.fpga.area`: the area that the model estimates for a configuration."""

from __future__ import annotations

from typing import Any

import click

from tilewright.fpga import area
from tilewright.fpga.area.model import COUNTS
from tilewright.fpga.bare.command import chosen_family, one_line_errors
from tilewright.fpga.bare.resources import FAMILIES
from tilewright.isa.config import NpuConfig


@click.command(
    epilog="\b\nExamples:\n  python -m tilewright.fpga.area base\n"
    "  python -m tilewright.fpga.area wide --board pynq_z2\n"
)
@click.argument("config", required=False)
@click.option("--family", type=click.Choice(list(FAMILIES)), help="ecp5 by default.")
@click.option("--board", metavar="NAME", help="Board whose family counts.")
def main(config: str | None, family: str | None, board: str | None) -> None:
    """Estimate the area of CONFIG (a preset or file) by the calibrated model of an FPGA family."""
    with one_line_errors():
        model = area.load(chosen_family(family, board))
        shown: dict[str, Any] = {"largest error on held-back points": {k: f"{v:.1%}" for k, v in model.error.items()}}
        if config is not None:
            machine = NpuConfig.load(config)
            found = model.estimate(machine)
            shown |= {count: getattr(found, count) for count in COUNTS}
            if sizes := model.beyond(machine):
                shown["extrapolated, the calibration has no"] = ", ".join(sizes)
    for name, value in shown.items():
        click.echo(f"{name}: {value}")


if __name__ == "__main__":
    main()
