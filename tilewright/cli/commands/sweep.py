"""`tilewright sweep`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tilewright import registry
from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.errors import UsageError
from tilewright.measure.clock import show
from tilewright.runtime.energy import meter

_NUMBER = re.compile(r"\d+")
_SHOWN = 15
_AXIS_COLUMNS = 3
_WIDTH = 100
#: Between two lines of progress where standard error is no terminal.
_EVERY_SECONDS = 60.0


@click.command(
    "sweep",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright sweep examples/sweeps/array.toml -o build/array\n"
        "  tilewright sweep space.toml --models resnet8,vww --models my.onnx --jobs 8 -o build/sweep\n"
        "  tilewright sweep space.toml --scheduler tcp://10.0.0.1:8786 --synth yosys -o build/sweep\n"
        "  tilewright sweep space.toml -o build/sweep --verify 3 --json -\n"
        "  tilewright sweep space.toml -o build/sweep --clock 80\n"
        "  tilewright sweep examples/sweeps/boards.toml --board pynq_z2 -o build/boards\n"
        "  tilewright sweep examples/sweeps/boards.toml -o build/boards       (all boards it names)\n"
        "The same command resumes a sweep that was stopped or killed.\n"
    ),
)
@click.argument("space", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Folder of the database; made if missing, resumed from if not.")  # fmt: skip
@click.option("--models", "models", multiple=True, metavar="NAME|FILE,...",
              help="Networks of the zoo, ONNX or TFLite files; repeatable. By default those the space names, else "
              "MLPerf Tiny's four and MobileNetV2 from the zoo.")  # fmt: skip
@arguments.shape_option
@click.option("--jobs", type=click.IntRange(1, 1024), help="Workers of the local cluster; by default one per CPU.")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler to use instead, such as tcp://10.0.0.1:8786.")
@click.option("--synth", type=click.Choice(["model", "yosys", "nextpnr"]), default="model", show_default=True,
              help="Area by the calibrated model, by Yosys, or also placed and routed for the clock.")  # fmt: skip
@click.option("--clock", "clock_mhz", type=arguments.FloatRange(0, 10_000, min_open=True), metavar="MHZ",
              help="Clock for times; default: clock_mhz of the space, else that of place and route, else by the "
              "calibrated model of the family.")  # fmt: skip
@click.option("--board", "boards", multiple=True, metavar="NAME",
              help="Board the space is for, in place of its own; repeatable, see `fpga boards`.")  # fmt: skip
@click.option("--verify", type=click.IntRange(0, 1000), default=0, metavar="N",
              help="Run N points on the RTL too and compare the cycles; exit code 1 if they differ.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Compute results again that failed before.")
@arguments.effort_option
@arguments.json_option
def command(
    space: Path,
    output: Path,
    models: tuple[str, ...],
    shapes: tuple[tuple[str, list[int]], ...],
    clock_mhz: float | None,
    boards: tuple[str, ...],
    json_path: str | None,
    **options: Any,
) -> int:
    """Sweep the configurations of SPACE over some networks.

    SPACE is a TOML file: axes, constraints, search and objectives; see docs/sweeps.md. Every result is in
    DIR/sweep.sqlite as soon as it is known.
    """
    from tilewright.sweep import boards_of, read_boards, run  # here, because `sweep --help` works without the extra

    terminal.prepare_json(json_path)
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is not a folder")
    named = [name for text in models for name in _split(text)]
    chosen: list[str | None] = [*(dict.fromkeys(boards) or boards_of(space))] or [None]
    with terminal.Working("reading networks"):
        shaped = arguments.same_input_once(shapes)
        read_ones = [*read_boards(space, named, shapes=shaped, clock_mhz=clock_mhz, boards=chosen).values()]
    for network in read_ones[0][1]:
        if network.note:
            click.echo(f"note: {network.name}: {network.note}", err=True)
    outcomes = []
    for loaded, networks in read_ones:
        where = f" for {loaded.board}" if len(chosen) > 1 else ""
        with _Shown(loaded.objectives[0].text, where) as shown, terminal.stdout_for_json(json_path):
            try:
                outcomes.append(run(loaded, networks, output, progress=shown.show, **options))
            except KeyboardInterrupt:
                click.echo(f"stopped; {output} has what was computed, the same command resumes", err=True)
                raise
    if len(outcomes) == 1:
        entries = outcomes[0].to_dict()
    else:
        entries = {"boards": {str(own.board): outcome.to_dict() for (own, _), outcome in zip(read_ones, outcomes)}}
    if terminal.emit_json(json_path, entries):
        for (own, _), outcome in zip(read_ones, outcomes):
            if len(outcomes) > 1:
                click.echo(f"{own.board}: `tilewright report {output} --sweep {outcome.sweep[:8]}` makes its page")
            _print(outcome, own, output)
        if len(outcomes) > 1:
            _print_boards(outcomes)
    return MISMATCH if any(map(_failed, outcomes)) else 0


def _failed(outcome: Any) -> bool:
    wrong = [v for v in outcome.verifications if v["state"] != "done" or v["rtl_cycles"] != v["simulated_cycles"]]
    return bool(wrong) or not outcome.front


def _split(text: str) -> list[str]:
    """Names at commas; a comma behind a zoo parameter (a:x=1,y=2) belongs to it."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and ":" in found[-1] and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


class _Shown(terminal.Working):
    """The progress of a sweep: points done, pruned and left, the front so far and the time left."""

    def __init__(self, objective: str, where: str = "") -> None:
        super().__init__(f"sweeping{where}", log=True, every_seconds=_EVERY_SECONDS)
        self.objective, self.where = objective, where

    def show(self, progress: Any) -> None:
        """Takes a `sweep.outcome.Progress`."""
        if progress.stage:
            self.update(progress.stage)
            return
        settled = progress.done + progress.pruned
        text = f"sweeping{self.where}: {progress.computed:,} results, {progress.done} points done, "
        text += f"{progress.pruned} pruned, {progress.left} left"
        if progress.best is not None:
            text += f", best {self.objective} {terminal.human(progress.best)}"
        if progress.hypervolume is not None:
            text += f", hypervolume {progress.hypervolume:.3f}"
        if settled and progress.left:
            text += f", about {_lasting(self.seconds * progress.left / settled)} left"
        self.update(text, settled, settled + progress.left)


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _area_note(model: Any, family: str) -> str:
    """The stated error of the area model."""
    errors = ", ".join(f"{count} {error:.1%}" for count, error in model.error.items())
    return f"area by the model of {family}; largest error against Yosys on held-back points: {errors}"


def _clock_note(model: Any, family: str) -> str:
    """The stated error of the model of the clock."""
    return f"clock by the model of {family}; {model.evidence}"


def _reach(model: Any, outcome: Any, space: Any) -> str:
    """Notes on a model's error: other RTL, and sizes of the front that it was not calibrated on."""
    sizes = (size for point in outcome.front for size in model.beyond(space.point(point["assignment"]).config))
    found = "; the RTL has changed since, so it may be larger" if model.changed else ""
    if extrapolated := ", ".join(dict.fromkeys(sizes)):
        found += f"; the best points are beyond what it was calibrated on: {extrapolated}"
    return found


def _print_fastest(outcome: Any, space: Any, console: Console) -> None:
    """The fastest points of each network, where there is a clock."""
    from tilewright.sweep.outcome import FASTEST, timed

    best = {network: outcome.fastest(network, FASTEST) for network in space.weights}
    shown = [point for points in best.values() for point in points]
    if not shown:
        return
    varied = [axis.field for axis in space.axes if len({point["assignment"][axis.field] for point in shown}) > 1]
    where = f" on {space.board}" if space.board is not None else ""
    table = Table(title=f"fastest compiled points{where}", title_justify="left", width=_WIDTH)
    table.add_column("network", overflow="fold")
    for heading in ("#", "MHz", "cycles", "ms", "inferences/s"):
        table.add_column(heading, justify="right")
    table.add_column(", ".join(varied), overflow="fold")
    for network, points in best.items():
        for number, point in enumerate(points):
            found = timed(point, network)
            rate = found["inferences_per_second"]
            axes = ", ".join(str(point["assignment"][name]) for name in varied)
            table.add_row(
                "" if number else network, str(point["number"]), f"{found['clock_mhz']:.1f}", f"{found['cycles']:,}",
                show(found["milliseconds"]), f"{rate:,.{0 if rate >= 100 else 1}f}" if rate else "", axes,
            )  # fmt: skip
    console.print(table)


def _print_boards(outcomes: list[Any]) -> None:
    """The fastest point of each network on each board, the fastest board first; boards without a clock are left out."""
    from tilewright.sweep.outcome import timed

    table = Table(title="fastest point of each board", title_justify="left", width=_WIDTH)
    for heading in ("network", "board"):
        table.add_column(heading, overflow="fold")
    for heading in ("#", "MHz", "ms", "LUT"):
        table.add_column(heading, justify="right")
    table.add_column("machine", overflow="fold")
    for network in outcomes[0].space.weights:
        rows = []
        for outcome in outcomes:
            for point in outcome.fastest(network, 1):
                found = timed(point, network)
                axes = ", ".join(f"{name} {value}" for name, value in point["assignment"].items())
                cells = [outcome.space.board, str(point["number"]), f"{found['clock_mhz']:.1f}",
                         show(found["milliseconds"]), terminal.human(point["metrics"]["lut"]), axes]  # fmt: skip
                rows.append((found["milliseconds"], cells))
        for place, (_, cells) in enumerate(sorted(rows)):
            table.add_row("" if place else network, *cells)
    if table.row_count:
        terminal.table_console().print(table)


def _print_why_none(outcome: Any) -> None:
    """The reasons why no point was worth a look, in one line: those of most points, which differ in a value at most."""
    verbs = {"infeasible": "break", "invalid": "are no machine:"}
    reasons = [(p["state"], p["reason"]) for p in outcome.points if p["state"] in verbs]
    alike = Counter((state, _NUMBER.sub("", reason)) for state, reason in reasons)
    told = []
    for (state, kind), count in alike.most_common(3):
        reason = next(reason for own, reason in reasons if (own, _NUMBER.sub("", reason)) == (state, kind))
        told.append(f"{count} {verbs[state]} {reason}")
    click.echo(f"no point is left: {'; '.join(told)}")


def _print(outcome: Any, space: Any, output: Path) -> None:
    from tilewright.sweep.outcome import STATES, left_to_cpu

    console = terminal.table_console()
    front = outcome.front[:_SHOWN]
    varied = [axis.field for axis in space.axes if len({point["assignment"][axis.field] for point in front}) > 1]
    together = len(varied) > _AXIS_COLUMNS
    objectives = [objective.text for objective in space.objectives]
    shown = [name for name in ("utilization", "lut", "dsp", "bram", "fmax_mhz")
             if name not in objectives and any(name in point["metrics"] for point in front)]  # fmt: skip
    table = Table(title=f"best points by {', '.join(objectives)}", title_justify="left", width=_WIDTH)
    table.add_column("#", justify="right")
    for heading in [", ".join(varied)] if together else varied:
        table.add_column(heading, justify="left" if together else "right", overflow="fold")
    for heading in (*objectives, *shown):
        table.add_column({"utilization": "util"}.get(heading, heading), justify="right", overflow="fold")
    for point in front:
        metrics = point["metrics"]
        axes = [str(point["assignment"][name]) for name in varied]
        cells = [str(point["number"]), *([", ".join(axes)] if together else axes)]
        cells += [terminal.human(metrics[f"objective{n}"]) for n in range(len(objectives))]
        cells += [f"{metrics[name]:.1%}" if name == "utilization" else terminal.human(metrics[name]) for name in shown]
        table.add_row(*cells)
    if outcome.front:
        console.print(table)
    if len(outcome.front) > _SHOWN:
        click.echo(f"{len(outcome.front) - _SHOWN} more are in the database")
    _print_fastest(outcome, space, console)
    states = [f"{outcome.count(s)} {s}" for s in STATES if outcome.count(s)]
    click.echo(f"{len(outcome.points)} points: {', '.join(states)}; {outcome.computed} results computed, "
               f"{outcome.reused} found; {output / 'sweep.sqlite'}")  # fmt: skip
    if not any(outcome.count(state) for state in ("done", "pruned", "failed")):
        _print_why_none(outcome)
        return
    if outcome.unpruned and space.prune:
        click.echo(f"note: nothing is pruned: {outcome.unpruned}", err=True)
    if unlike := left_to_cpu(outcome.points):
        click.echo(f"note: {unlike}", err=True)
    if outcome.area_model is not None:
        click.echo(_area_note(outcome.area_model, space.family) + _reach(outcome.area_model, outcome, space))
    if outcome.clock_model is not None:
        click.echo(_clock_note(outcome.clock_model, space.family) + _reach(outcome.clock_model, outcome, space))
    if any("microjoules" in name for named in (*space.objectives, *space.constraints) for name in named.names):
        for line in registry.service("energy tables").staleness(meter().load()):
            click.echo(line)
    for point in [p for p in outcome.points if p["state"] == "failed"][:3]:
        click.echo(f"failed: {point['assignment']}: {point['reason']}")
    for v in outcome.verifications:
        verdict = v["error"] or f"RTL {v['rtl_cycles']:,} cycles, simulator {v['simulated_cycles']:,}, " \
            f"difference {v['rtl_cycles'] - v['simulated_cycles']}"  # fmt: skip
        click.echo(f"verified {v['point']}: {verdict}")
