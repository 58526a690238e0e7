"""`tilewright disasm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewright.cli import arguments, programs, terminal
from tilewright.errors import UsageError
from tilewright.isa.assembler import disassemble, disassemble_one
from tilewright.isa.encoding import Op, from_bytes
from tilewright.isa.program import CpuStep, Program
from tilewright.store.files import write_text


@click.command(
    "disasm", epilog="\b\nExamples:\n  tilewright disasm model.twp | less\n  tilewright disasm model.twp -o model.s\n"
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of standard output.")
@arguments.json_option
def command(file: Path, output: Path | None, json_path: str | None) -> None:
    """Print the instructions of FILE, a compiled program or a raw image (.bin), with layers as comments.

    The text is what `asm` reads.
    """
    if output is not None:
        terminal.prepare_output(output)
    terminal.prepare_json(json_path)
    if file.suffix == ".bin" and file.is_file():
        program, ops = None, from_bytes(file.read_bytes())
        text = disassemble(ops)
    elif file.is_file() and not Program.is_program(file):
        raise UsageError(f"{file} is not a compiled program; `tilewright compile` makes one")
    else:
        program = programs.Request(model=file).open()[0]
        ops, text = program.ops(), listing(program)
    if output is not None:
        write_text(output, text)
    if json_path is not None:
        terminal.emit_json(json_path, _facts(program, ops))
    if output is None and json_path != "-":
        click.echo(text, nl=False)


def _facts(program: Program | None, ops: list[Op]) -> dict[str, Any]:
    """The JSON form: each instruction with its fields, and which belong to a layer of a program."""
    found: dict[str, Any] = {
        "instructions": [{"name": o.name, "fields": o.values, "text": disassemble_one(o)} for o in ops]
    }
    if program is not None:
        found |= {"model": program.name, "config": program.config.name, "fingerprint": program.config.fingerprint}
        found["layers"] = [
            {"name": layer.name, "op": layer.op, "tile": layer.tile, "first": layer.first, "count": layer.count}
            for layer in program.layers
            if layer.count
        ]
    return found


def listing(program: Program) -> str:
    """Assembly text with a comment where a step or a layer starts."""
    starts: dict[int, list[str]] = {}
    for index, step in enumerate(program.steps):
        if not isinstance(step, CpuStep):
            last = step.first + step.count - 1
            starts.setdefault(step.first, []).append(f"step {index}: instructions {step.first}..{last}")
    for layer in program.layers:
        if layer.count:
            tile = f", {layer.tile}" if layer.tile else ""
            starts.setdefault(layer.first, []).append(f"layer {layer.name} ({layer.op}{tile})")
    ops = program.ops()
    lines = [f"# {program.name} for {program.config.name} ({program.config.fingerprint}), {len(ops)} instructions"]
    for index, operation in enumerate(ops):
        lines += [f"# {' '.join(text.split())}" for text in starts.get(index, [])]
        lines.append(disassemble_one(operation))
    return "\n".join(lines) + "\n"
