"""`tilewright tune`."""

from __future__ import annotations

from pathlib import Path

import click
from rich import box
from rich.table import Table

from tilewright import registry
from tilewright.api.build import builder
from tilewright.api.source import ModelSource
from tilewright.cli import arguments, memory_options, terminal
from tilewright.cli.commands import tune_cpu
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.note_forms import general
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.energy import meter
from tilewright.store.files import check_readable
from tilewright.tuning.log import open_log
from tilewright.tuning.objective import Figures, Objective, four_digits
from tilewright.tuning.tune import tune


@click.command(
    "tune",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright tune mobilenet.onnx --budget 300             later compiles of it are faster\n"
        "  tilewright tune net.tflite --config small --log team.jsonl\n"
        "  tilewright compile net.tflite --config small --tuning team.jsonl -o net.twp\n"
        "  tilewright tune net.tflite --config wide --board ulx3s_85f     for the memory of a board\n"
        "  tilewright tune net.tflite --for energy --log energy.jsonl\n"
        "  tilewright tune --cpu float.onnx --budget 120           kernels of this processor\n"
    ),
)
@arguments.model_argument
@click.option("--cpu", is_flag=True, help="Tune the kernels of this processor instead, by measuring them.")
@arguments.config_option
@arguments.objective_option
@arguments.shape_option
@memory_options.options
@arguments.clock_option
@click.option(
    "--budget",
    type=arguments.FloatRange(1.0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time to search.",
)
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes; by default one per core.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random restarts.")
@arguments.tuning_option("--log")
@arguments.json_option
@arguments.gather(memory_options.MemoryOptions, "beside")
def command(
    model: Path,
    cpu: bool,
    config: str | None,
    objective: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    beside: memory_options.MemoryOptions,
    budget: float,
    jobs: int | None,
    seed: int,
    tuning: str | None,
    json_path: str | None,
) -> None:
    """Search faster schedules for MODEL, or ones of less energy, by exact cycles, until the budget is used up.

    What is found goes into a log; every later compile of the same layers for the same configuration and memory uses it
    where it saves cycles. What saves energy goes into a log of its own, used by `tilewright compile --for energy`, and
    where --tuning FILE names it.
    Ctrl-C ends the search and keeps what was found. A log is a text file with one finding per line: logs of several
    people can be joined by concatenation.
    """
    terminal.prepare_json(json_path)
    check_readable(model)
    if Program.is_program(model):
        raise UsageError(f"{model} is compiled already; tune the model it was made from")
    if cpu:
        if (config, jobs, objective, beside) != (None, None, None, memory_options.MemoryOptions()):
            raise UsageError(
                "--cpu measures kernels on this processor: --config, --for, --jobs, --clock and those of the memory do "
                "not go with it"
            )
        tune_cpu.run(model, arguments.same_input_once(shapes), budget, tuning, json_path)
        return
    chosen = Objective(objective or "cycles")
    log = open_log(tuning, chosen)
    if log is None:
        raise UsageError("the tuning log is switched off; name one with --log FILE")
    log.require(chosen)
    if tuning is not None:
        terminal.check_named_once(log.path)
    log.check_writable()
    if beside.clock_mhz is not None and beside.board is None:
        raise UsageError("--clock says how fast a board's memory is: it is for --board, which is not given")
    machine = NpuConfig.load(config or "base")
    _, timing = beside.clock_and_memory(machine)
    source, options = ModelSource(model, arguments.same_input_once(shapes)), CompileOptions(memory=timing)
    build = builder(source, machine, options)
    with terminal.Working(f"tuning {model.name}") as working, terminal.stdout_for_json(json_path):
        processes = jobs or arguments.cpus()
        found = tune(
            build, log, budget, objective=chosen, memory=timing, jobs=processes, seed=seed, progress=working.fraction
        )
    if not terminal.emit_json(json_path, found.to_dict() | {"log": str(log.path)}):
        return
    console = terminal.table_console()
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for heading in ("step", "layers", "cycles", "tuned", "change", "µJ", "tuned", "change", "tried", "moves"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for at, (step, (before, after)) in enumerate(zip(found.steps, found.figures)):
        layers = sum(count for count, _ in step.default.units)
        shown.add_row(str(at), str(layers), *_cells(before, after), str(step.tried), str(len(step.taken)))
    console.print(shown)
    for note in general(found.program.notes):
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    cycles, tuned_cycles, cycles_change, uj, tuned_uj, uj_change = _cells(found.default, found.best)
    text = f"{found.program.name}: {cycles} cycles, {uj} µJ"
    if found.best != found.default:
        text += f", tuned {tuned_cycles} ({cycles_change}), {tuned_uj} ({uj_change}); written to {log.path}"
    else:
        text += "; nothing better found" if chosen is not Objective.CYCLES else "; nothing faster found"
    console.print(text + (" (interrupted)" if found.interrupted else ""), markup=False, soft_wrap=True)
    if chosen is not Objective.CYCLES:
        for line in registry.service("energy tables").staleness(meter().load()):
            console.print(line, markup=False, soft_wrap=True)


def _cells(before: Figures, after: Figures) -> tuple[str, ...]:
    """Cycles and µJ, each before, after and by how much they changed."""
    cycles = f"{before.cycles:,.0f}", f"{after.cycles:,.0f}", f"{after.cycles / before.cycles - 1:+.2%}"
    change = f"{after.microjoules / before.microjoules - 1:+.2%}"
    return *cycles, four_digits(before.microjoules), four_digits(after.microjoules), change
