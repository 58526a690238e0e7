"""`tilewright disasm`."""

from __future__ import annotations

from pathlib import Path

import click

from isa.assembler import disassemble_one
from isa.encoding import from_bytes
from isa.program import CpuStep, Program
from tilewright.cli import programs
from tilewright.errors import UsageError
from tilewright.files import check_writable, write_text


@click.command(
    "disasm", epilog="\b\nExamples:\n  tilewright disasm model.twp | less\n  tilewright disasm model.twp -o model.s\n"
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of standard output.")
def command(file: Path, output: Path | None) -> None:
    """Print the instructions of FILE, a compiled program or a raw image (.bin), with layers as comments.

    The text is what `asm` reads.
    """
    if output is not None:
        check_writable(output)
    if file.suffix == ".bin" and file.is_file():
        text = "".join(disassemble_one(o) + "\n" for o in from_bytes(file.read_bytes()))
    elif file.is_file() and not Program.is_program(file):
        raise UsageError(f"{file} is not a compiled program; `tilewright compile` makes one")
    else:
        text = listing(programs.Request(model=file).open()[0])
    if output is not None:
        write_text(output, text)
    else:
        click.echo(text, nl=False)


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
