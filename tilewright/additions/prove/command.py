"""`tilewright prove`."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import tilewright as tw
from tilewright.api.options import ProgramOptions
from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISMATCH
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.prove import compiled, witness
from tilewright.prove.checker import Verdict, prove
from tilewright.store.files import check_readable


@click.command(
    "prove",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright prove model.onnx --config small\n"
        "  tilewright prove model.onnx --program model.twp --json -\n"
    ),
)
@arguments.model_argument
@click.option(
    "--program", "program_path", type=click.Path(path_type=Path), help="A program of this model, instead of a new one."
)
@arguments.config_option
@arguments.shape_option
@arguments.effort_option
@click.option("--seed", type=click.IntRange(0), help="Seed of the names of values; by default a new one each time.")
@click.option(
    "--inputs", type=click.IntRange(0), default=20, show_default=True,
    help="Random inputs to search one that shows a difference.",
)  # fmt: skip
@arguments.json_option
def command(
    model: Path,
    program_path: Path | None,
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...],
    effort: int,
    seed: int | None,
    inputs: int,
    json_path: str | None,
) -> int:
    """Prove that the program of MODEL, an ONNX or TFLite model, is right for all inputs.

    It then computes the model's quantised graph. Exit code 1 if that is not proved.
    """
    terminal.prepare_json(json_path)
    check_readable(model)
    if Program.is_program(model):
        raise UsageError(f"{model} is a compiled program: give its model, and the program with --program")
    started = time.perf_counter()
    given = arguments.same_input_once(shapes)
    with Working(f"compiling {model.name}"), stdout_for_json(json_path):
        if program_path is None:
            machine = NpuConfig.load(config or "base")
            program = tw.compile_program(model, machine, given, effort=effort)
        else:
            program = tw.load(program_path)
            if config is not None:
                raise UsageError(f"{program_path} is compiled already: --config has no effect on it")
        chosen = ProgramOptions(effort=effort).compiler
        graph = compiled.quantised_graph(model, program.config, chosen, given or None)
    with Working(f"proving {model.name}", log=True), stdout_for_json(json_path):
        verdict = prove(graph, program, secrets.randbits(64) if seed is None else seed)
        found = None if verdict.proved or not inputs else witness.search(str(model), program, inputs)
    value = _summary(program, verdict, found, time.perf_counter() - started)
    if terminal.emit_json(json_path, value):
        click.echo(_text(model, program, verdict, found, inputs, value["seconds"]))
    return 0 if verdict.proved else MISMATCH


def _summary(program: Program, verdict: Verdict, found: witness.Witness | None, seconds: float) -> dict[str, Any]:
    """The JSON form."""
    return {
        "model": program.name,
        "config": program.config.name,
        **asdict(verdict),
        "witness": None if found is None else asdict(found) | {"text": str(found)},
        "trusted_until": compiled.LAST_TRUSTED,
        "content": program.content_hash(),
        "seconds": seconds,
    }


def _text(
    model: Path, program: Program, verdict: Verdict, found: witness.Witness | None, inputs: int, seconds: float
) -> str:
    """The form for people."""
    where = f"{model.name} on {program.config.name}"
    work = (
        f"{verdict.instructions:,} instructions, order of {verdict.accesses:,} accesses; trusted: "
        f"{len(verdict.opaque)} nodes and {verdict.conversions} conversions on the CPU; "
        + "".join(f"{rows:,} rows of {what} by the integers of ROW; " for what, rows in verdict.assumed.items())
        + f"{seconds:.1f} s, seed {verdict.seed}"
    )
    if verdict.proved:
        return f"{where}: proved for all inputs, {verdict.elements:,} output elements; {work}"
    lines = [f"{where}: {verdict.reason}"]
    difference = verdict.difference
    if difference is not None:
        lines.append(
            f"  first of {difference.differing:,} output elements: {difference.output}{list(difference.place)}"
        )
        if difference.tensor:
            lines.append(f"  first in the graph: {difference.tensor}{list(difference.index)} of {difference.layer}")
    if found is not None:
        lines.append(f"  {found}")
    elif inputs:
        lines.append(f"  none of {inputs} random inputs shows a difference")
    return "\n".join([*lines, f"  {work}"])
