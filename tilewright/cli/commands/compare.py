"""`tilewright compare`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click
from rich import box
from rich.table import Table

from tilewright import registry
from tilewright.api.options import ProgramOptions
from tilewright.cli import arguments, memory_options, programs, terminal
from tilewright.compiler.stages.note_forms import general
from tilewright.errors import UsageError
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.program import Program
from tilewright.measure.clock import show
from tilewright.measure.compare import Comparison, Pair, compare_alike, differences
from tilewright.measure.explain import Explanation, explain
from tilewright.measure.labels import short_name


@click.command(
    "compare",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright compare small base --model resnet18.onnx         two configurations\n"
        "  tilewright compare base wide.toml --model a.onnx --model b.tflite\n"
        "  tilewright compare before.twp after.twp                     two programs\n"
        "  tilewright compare float_head.onnx int8_head.onnx --config small --json -\n"
    ),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(path_type=Path),
    help="The network to run on two configurations; repeatable.",
)
@arguments.config_option
@arguments.shape_option
@arguments.effort_option
@arguments.tuning_option("--tuning")
@memory_options.options
@arguments.clock_option
@click.option("--layers/--no-layers", default=None, help="The table per layer; by default with one network only.")
@arguments.json_option
@arguments.gather(memory_options.MemoryOptions, "beside")
def command(
    a: str,
    b: str,
    models: tuple[Path, ...],
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    effort: int,
    tuning: str | None,
    beside: memory_options.MemoryOptions,
    layers: bool | None,
    json_path: str | None,
) -> None:
    """Compare A and B, two configurations or two programs, layer by layer.

    A configuration is a preset, a .json or a .toml file and needs --model; a program may also be a model, which is
    compiled for --config first. Cycles are those of the cycle-level simulator. Where the tuning log has schedules for
    one side only, they are left out, with a note.
    """
    terminal.prepare_json(json_path)
    arguments.check_log(tuning)

    def side(path: Path, chosen: str | None) -> Callable[[bool], Explanation]:
        def explained(untuned: bool) -> Explanation:
            options = ProgramOptions(effort=effort, tuning="off" if untuned else tuning)
            request = programs.Request(model=path, config=chosen, shapes=shapes, options=options, **asdict(beside))
            program, compiled = request.open(json_path)
            if not compiled and chosen is not None:
                raise UsageError(f"{path} is compiled already: a configuration has no effect on it")
            clock, timing = request.clock_and_memory(program.config)
            with terminal.Working(f"running {program.name}"), terminal.stdout_for_json(json_path):
                return explain(program, timing, clock)

        return explained

    found = [compare_alike(side(*left), side(*right)) for left, right in _sides(a, b, models, config)]
    if not terminal.emit_json(json_path, [each.to_dict() for each in found]):
        return
    console = terminal.table_console()
    if layers or (layers is None and len(found) == 1):
        for each in found:
            console.print(table(each, console.width))
    console.print(totals_table(found))
    for line in dict.fromkeys(line for each in found for line in _notes(each)):
        console.print(line, markup=False, soft_wrap=True)
    for line in registry.service("energy tables").staleness(found[0].a.energy_model):
        console.print(line, markup=False)


def _notes(found: Comparison) -> list[str]:
    """The lines under the table: what the numbers were made with."""
    sides = (("a", found.a), ("b", found.b))
    notes = [f"{name}: {note}" for name, side in sides for note in general(side.program.notes)]
    return [f"note: {found.a.program.name}: {note}" for note in (*found.notes, *notes)]


Side = tuple[Path, str | None]


def _sides(a: str, b: str, models: tuple[Path, ...], config: str | None) -> list[tuple[Side, Side]]:
    """The programs or models to run on each side, with their configurations."""
    kinds = [_is_config(a), _is_config(b)]
    if kinds[0] != kinds[1]:
        one, other = (a, b) if kinds[0] else (b, a)
        raise UsageError(f"{one} is a configuration, {other} is not; give two configurations, or two programs")
    if not kinds[0]:
        if models:
            raise UsageError(f"--model goes with two configurations; {a} and {b} are programs or models")
        needs = [None if Path(name).is_file() and Program.is_program(Path(name)) else config for name in (a, b)]
        if config is not None and needs == [None, None]:
            raise UsageError(f"{a} and {b} are compiled already: --config has no effect on them")
        return [((Path(a), needs[0]), (Path(b), needs[1]))]
    if not models:
        raise UsageError("two configurations need a network: --model FILE")
    if config is not None:
        raise UsageError(f"--config has no effect: {a} and {b} are the configurations")
    for name in (a, b):
        NpuConfig.load(name)
    return [((model, a), (model, b)) for model in models]


def _is_config(name: str) -> bool:
    return name in PRESETS or Path(name).suffix in (".json", ".toml")


def table(found: Comparison, width: int) -> Table:
    """Makes the table for people: cycles and utilisation of both sides, the ratio, and what made most of the
    difference."""
    a, b = found.a.program, found.b.program
    title = f"a: {_label(found.a)}\nb: {_label(found.b)}"
    if a.config != b.config:
        changed = ", ".join(f"{k} {x} -> {y}" for k, (x, y) in differences(a.config, b.config).items())
        title += f"\n{changed}" if changed else ""
    shown = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_footer=True
    )
    whole = Pair("all", found.a.rows, found.b.rows)
    room = max(12, min(max((len(pair.name) for pair in found.pairs), default=0), width - 84))
    cells = [_cells(pair, room) for pair in [*found.pairs, whole]]
    headings = ("layer", "a cycles", "util", "b cycles", "util", "b/a", "difference made by")
    for heading, footer in zip(headings, cells[-1]):
        left = heading in (headings[0], headings[-1])
        shown.add_column(heading, footer=footer, justify="left" if left else "right", no_wrap=True)
    for row in cells[:-1]:
        shown.add_row(*row)
    return shown


def _label(found: Explanation) -> str:
    config = found.program.config
    time = f", {found.clock.sentence(found.cycles)}" if found.clock else ""
    size = f"{config.block_in}x{config.block_out}"
    return f"{found.program.name} on {config.name} ({size}), {found.cycles:,} cycles{time}"


def _cells(pair: Pair, room: int) -> list[str]:
    cells = [short_name(pair.name, room)]
    for cycles, bound in zip(pair.cycles, pair.bounds):
        cells += [f"{cycles}", f"{bound / cycles:.0%}"] if cycles else ["-", ""]
    both = all(pair.cycles)
    cells.append(f"{pair.cycles[1] / pair.cycles[0]:.2f}" if both else "")
    largest = sorted(pair.changes.items(), key=lambda change: -abs(change[1]))[:2] if both else []
    total = pair.cycles[1] - pair.cycles[0]
    cells.append(", ".join(f"{key} {n:+d}" for key, n in largest if abs(n) >= max(1, abs(total) // 10)))
    return cells


def totals_table(found: list[Comparison]) -> Table:
    """One row per network."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    shown.add_column("network", no_wrap=True)
    for heading in (
        "a cycles",
        "util",
        "b cycles",
        "util",
        "b/a",
        "a ms",
        "b ms",
        "a bytes",
        "b bytes",
        "a µJ",
        "b µJ",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        cells = [each.a.program.name]
        for side in (each.a, each.b):
            cells += [f"{side.cycles:,}", f"{side.bound / side.cycles:.0%}" if side.cycles else ""]
        traffic = [f"{s.counters.bytes_read + s.counters.bytes_written:,}" for s in (each.a, each.b)]
        times = [show(s.clock.milliseconds(s.cycles)) if s.clock else "" for s in (each.a, each.b)]
        energies = [registry.service("energy tables").microjoules(side.energy.total) for side in (each.a, each.b)]
        shown.add_row(*cells, f"{each.ratio:.3f}", *times, *traffic, *energies)
    return shown
