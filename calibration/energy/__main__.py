"""`python -m calibration.energy`: errors of the energy model, energy per event on a machine, and the calibration."""

from __future__ import annotations

from pathlib import Path

import click

from calibration.energy import fit, liberty, points
from calibration.energy.truth import Machine
from tilewright import energy
from tilewright.energy.events import EVENTS
from tilewright.errors import UsageError
from tilewright.fpga.bare.command import one_line_errors
from tilewright.isa.config import NpuConfig


@click.command(
    epilog=(
        "\b\nExamples:\n  python -m calibration.energy\n  python -m calibration.energy tiny\n"
        "  python -m calibration.energy tiny --today\n"
    )
)
@click.argument("config", required=False)
@click.option(
    "--truth", "mode", flag_value="truth", help="Measure the truth (hours; what is known is kept), fit, write."
)
@click.option("--fit", "mode", flag_value="fit", help="Fit the stored truth again.")
@click.option("--check", "mode", flag_value="check", help="Look whether the RTL still makes the designs measured.")
@click.option(
    "--today", "mode", flag_value="today", help="Measure CONFIG's gates of today, and judge the model by them."
)
@click.option("--glitches", "mode", flag_value="glitches", help="What toggles before it settles adds, on `tiny`.")
@click.option("--machines", type=click.IntRange(2, len(points.MACHINES)), help="With --truth: only the first ones.")
@click.option("--nm", type=click.FloatRange(1, 1000), help="With --truth: length of $TILEWRIGHT_LIBERTY's process.")
@click.option("--output", type=click.Path(path_type=Path), help="With --truth: the file, for what is not shipped.")
def main(config: str | None, mode: str | None, machines: int | None, nm: float | None, output: Path | None) -> None:
    """Errors of the energy model; with CONFIG (a preset or file), what each event costs there, or with --today how far
    off the model is there."""
    with one_line_errors():
        if config is not None and mode not in (None, "today"):
            raise UsageError(f"CONFIG is for what events cost and for --today, not for --{mode}")
        if config is None and mode == "today":
            raise UsageError("--today needs CONFIG, the machine")
        for name, value in (("machines", machines), ("nm", nm), ("output", output)):
            if value is not None and mode != "truth":
                raise UsageError(f"--{name} is for --truth")
        if mode == "truth":
            fit.calibrate(click.echo, machines or len(points.MACHINES), nm, output)
        elif mode == "fit":
            fit.fit_again(click.echo)
        elif mode == "check":
            fit.check(click.echo)
        elif mode == "glitches":
            _glitches()
        elif config is not None and mode == "today":
            fit.judge(NpuConfig.load(config), click.echo)
        elif config is not None:
            _costs(NpuConfig.load(config))
        else:
            _errors()


def _errors() -> None:
    stored = fit.stored()
    machines = {name: NpuConfig.from_dict(values) for name, values in stored["machines"].items()}
    points = stored["points"]
    for entry, off in zip(points, fit.errors(stored["coefficients"], points, machines)):
        uj = sum(fit.pj_of(entry).values()) / 1e6
        name = f"{entry['machine']:12} {entry['program']:11} {entry['cycles']:7,} cycles"
        click.echo(f"{name} {uj:8.2f} uJ {off:+6.1%} {'held back' if entry['held_back'] else 'fitted'}")
    click.echo(fit.summary(stored))


def _costs(config: NpuConfig) -> None:
    found = energy.load()
    logic, memories = found.costs(config).values()
    click.echo(f"pJ on {config.name}, {found.technology}: gates and clock, memories on the chip")
    for event, a, b in zip(EVENTS, logic, memories):
        click.echo(f"{event:13} {a:10,.1f} {b:10,.1f}")


def _glitches() -> None:
    config = points.MACHINES[0][0]
    machine = Machine(config, liberty.load())
    for point in (p for p in points.POINTS if p.suits(config)):
        still, moving = (machine.measure(point, glitches=on) for on in (False, True))
        nj = [found["pj"]["nets and gates"] / found["cycles"] / 1e3 for found in (still, moving)]
        added = sum(fit.pj_of(moving).values()) / sum(fit.pj_of(still).values()) - 1
        clock = still["pj"]["clock"] / still["cycles"] / 1e3
        click.echo(
            f"{config.name}: {point.name}: nets and gates {nj[0]:.2f} nJ a cycle, with glitches {nj[1]:.2f}, beside "
            f"{clock:.2f} for the clock; all energy on the chip {added:+.1%}"
        )


if __name__ == "__main__":
    main()
