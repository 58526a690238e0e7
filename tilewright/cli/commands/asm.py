"""`tilewright asm`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal
from tilewright.errors import UsageError
from tilewright.isa.assembler import assemble
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import DecodeError, check, to_bytes
from tilewright.store.files import write_bytes


@click.command("asm", epilog="\b\nExamples:\n  tilewright asm test.s -o test.bin --config small\n")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Instruction image to write.")
@arguments.config_option
@arguments.json_option
def command(file: Path, output: Path, config: str | None, json_path: str | None) -> None:
    """Assemble FILE into a raw instruction image, 16 bytes an instruction.

    Every instruction is checked against the configuration (`base` unless another is given).
    """
    terminal.prepare_output(output)
    terminal.prepare_json(json_path)
    chosen = NpuConfig.load(config or "base")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not assembly text") from None
    operations = assemble(text, str(file))
    if not operations:
        raise UsageError(f"{file} holds no instruction")
    for index, operation in enumerate(operations):
        try:
            check(operation, chosen)
        except DecodeError as error:
            raise UsageError(f"{file}: instruction {index}: {error}") from None
    image = to_bytes(operations)
    write_bytes(output, image)
    facts = {"output": str(output), "config": chosen.name, "fingerprint": chosen.fingerprint}
    terminal.emit_json(json_path, facts | {"instructions": len(operations), "bytes": len(image)})
