"""`tilewright schedule`."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import click

from tilewright.api.build import builder
from tilewright.api.source import ModelSource
from tilewright.cli import arguments, memory_options, terminal
from tilewright.compiler.options import CompileOptions
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.cost import measure, program_cycles
from tilewright.store.files import check_readable
from tilewright.tuning.apply import Advisor
from tilewright.tuning.log import open_log
from tilewright.tuning.schedule_file import Recorder, text_of


@click.command(
    "schedule",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright schedule resnet8.onnx -o resnet8.toml\n"
        "  tilewright compile resnet8.onnx --schedule resnet8.toml -o resnet8.twp   after an edit\n"
    ),
)
@arguments.model_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; by default it is printed.")
@arguments.config_option
@arguments.shape_option
@arguments.effort_option
@memory_options.options
@arguments.clock_option
@arguments.tuning_option("--tuning")
@arguments.kernels_option
@arguments.json_option
@arguments.gather(memory_options.MemoryOptions, "beside")
def command(
    model: Path,
    output: Path | None,
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    effort: int,
    tuning: str | None,
    kernels: tuple[Any, ...],
    json_path: str | None,
    beside: memory_options.MemoryOptions,
) -> None:
    """Write the schedule that MODEL is compiled with: groups of layers, tiles, tensors that stay in ACT.

    It is a TOML file to be read, edited and given back to `tilewright compile --schedule`, which checks it. Schedules
    of the tuning log are taken where it has some, as `compile` does.
    """
    if output is not None:
        terminal.prepare_output(output)
    terminal.prepare_json(json_path)
    check_readable(model)
    if Program.is_program(model):
        raise UsageError(f"{model} is compiled already: give the model it was made from")
    machine = NpuConfig.load(config or "base")
    _, timing = beside.clock_and_memory(machine)
    options = CompileOptions(effort=effort, memory=timing, kernels=kernels)
    log = open_log(tuning)
    recorder = Recorder(Advisor(log.best) if log is not None and log.findings else None, effort)
    source = ModelSource(model, arguments.same_input_once(shapes), kernels=kernels)
    build = builder(source, machine, options, compared_by=functools.partial(measure, timing=timing))
    with terminal.Working(f"compiling {model.name}"), terminal.stdout_for_json(json_path):
        program = build(recorder)
    if not recorder.steps:
        raise UsageError(f"{program.name}: no part of it runs on the NPU, there is no schedule")
    cycles = program_cycles(program, timing)
    text = text_of(program.name, machine.name, cycles, recorder.steps)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    facts = {"output": None if output is None else str(output), "fingerprint": machine.fingerprint}
    if not terminal.emit_json(json_path, tomllib.loads(text) | facts):
        return
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{output}: {len(recorder.steps)} steps, {cycles:,} cycles")
