"""`python -m tilewright.energy_truth`: the model's errors, what events cost on a machine, and the calibration."""

from __future__ import annotations

import json
from typing import Any

import click

from common.errors import TilewrightError
from isa.config import NpuConfig
from tilewright import energy
from tilewright.energy import model
from tilewright.energy.events import EVENTS
from tilewright.energy_truth import calibration, liberty, points
from tilewright.energy_truth.truth import Machine


@click.command(epilog="\b\nExamples:\n  python -m tilewright.energy_truth\n  python -m tilewright.energy_truth tiny\n")
@click.argument("config", required=False)
@click.option("--truth", "measure", is_flag=True, help="Measure the truth (an hour; kept), fit, write.")
@click.option("--fit", is_flag=True, help="Fit the stored truth again.")
@click.option("--machines", type=click.IntRange(2), default=len(points.MACHINES), help="Machines of the truth.")
@click.option("--glitches", is_flag=True, help="What toggles before it settles adds, on the first machine.")
def main(config: str | None, measure: bool, fit: bool, machines: int, glitches: bool) -> None:
    """Errors of the energy model; with CONFIG (a preset or file), what each event costs there."""
    try:
        if measure:
            calibration.calibrate(click.echo, machines)
        elif fit:
            stored = _stored()
            configs = {name: NpuConfig.from_dict(values) for name, values in stored["machines"].items()}
            calibration.write(configs, stored["points"], stored["sources"], click.echo)
        elif glitches:
            _glitches()
        elif config is not None:
            _costs(NpuConfig.load(config))
        else:
            _errors()
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None


def _stored() -> dict[str, Any]:
    energy.load()  # says what to do where there is none
    found: dict[str, Any] = json.loads(model.calibration_file().read_text(encoding="utf-8"))
    return found


def _errors() -> None:
    stored = _stored()
    machines = {name: NpuConfig.from_dict(values) for name, values in stored["machines"].items()}
    points = stored["points"]
    for entry, off in zip(points, calibration.errors(stored["coefficients"], points, machines)):
        uj = sum(calibration.pj_of(entry).values()) / 1e6
        name = f"{entry['machine']:12} {entry['program']:11} {entry['cycles']:7,} cycles"
        click.echo(f"{name} {uj:8.2f} uJ {off:+6.1%} {'held back' if entry['held_back'] else 'fitted'}")
    click.echo(calibration.summary(stored))


def _costs(config: NpuConfig) -> None:
    found = energy.load()
    logic, memories = found.costs(config).values()
    click.echo(f"pJ on {config.name}, {found.technology}: gates and clock, memories on the chip")
    for event, a, b in zip(EVENTS, logic, memories):
        click.echo(f"{event:13} {a:10,.1f} {b:10,.1f}")


def _glitches() -> None:
    config = points.MACHINES[0][0]
    machine = Machine(config, liberty.load())
    for point in points.POINTS:
        still, moving = (sum(calibration.pj_of(machine.measure(point, on)).values()) / 1e6 for on in (False, True))
        added = f"with glitches {moving:.2f} ({moving / still - 1:+.1%})"
        click.echo(f"{config.name}: {point.name}: {still:.2f} uJ, {added}")


if __name__ == "__main__":
    main()
