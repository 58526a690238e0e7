"""`python -m calibration`: whether the RTL still makes the designs that the product's models were calibrated on."""

from __future__ import annotations

from functools import partial

import click

from calibration.designs import check_designs
from tilewright import energy
from tilewright.common.errors import TilewrightError
from tilewright.energy.model import CALIBRATION
from tilewright.fpga import area, fmax
from tilewright.fpga.bare.command import one_line_errors
from tilewright.isa.config import NpuConfig

#: Models with what measures them anew.
COMMANDS = {"area": "python -m calibration.area", "fmax": "python -m calibration.fmax", "energy": "make energy-truth"}


@click.command(epilog="\b\nExamples:\n  python -m calibration\n  python -m calibration area fmax\n")
@click.argument("models", nargs=-1, type=click.Choice(list(COMMANDS)))
def main(models: tuple[str, ...]) -> None:
    """Elaborate the machines of the calibrations, seconds each, and compare their designs with the measured ones."""
    with one_line_errors():
        others = [
            name for name in models or COMMANDS if check_designs(measured_designs(name), partial(_print_line, name))
        ]
        if others:
            again = ", ".join(COMMANDS[name] for name in others)
            raise TilewrightError(f"other designs than those measured for {', '.join(others)}; anew by: {again}")


def measured_designs(name: str) -> list[tuple[NpuConfig, str]]:
    """The machines of a model, of all families, with the digests of the designs that were measured."""
    if name == "energy":
        return energy.load(CALIBRATION).measured
    if name == "area":
        return [point for family in area.calibrated() for point in area.load(family).designs]
    return [point for family in fmax.calibrated() for point in fmax.load(family).designs]


def _print_line(name: str, line: str) -> None:
    click.echo(f"{name}: {line}")


if __name__ == "__main__":
    main()
