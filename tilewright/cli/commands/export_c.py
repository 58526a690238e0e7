"""`tilewright export-c`."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal
from tilewright.export import export_c, identifier
from tilewright.store.files import load


@click.command(
    "export-c",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright compile net.onnx -o net.twp --host aarch64-linux\n"
        "  tilewright export-c net.twp -o net\n"
        "  make -C net CC=aarch64-linux-gnu-gcc\n"
    ),
)
@click.argument("program", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--name", metavar="IDENTIFIER", help="Name of the program in C; by default made from the file's.")
@arguments.trust_option
@arguments.json_option
def command(program: Path, output: Path, name: str | None, trust: bool, json_path: str | None) -> None:
    """Write PROGRAM, compiled with --host, as objects, C sources and a Makefile."""
    terminal.prepare_json(json_path)
    loaded = load(program, trust=trust)
    files = export_c(loaded, output, name or identifier(program.stem))
    if terminal.emit_json(json_path, {"folder": str(output), "host": loaded.host.triple, "files": files}):
        sources = ", ".join(files)
        terminal.table_console().print(f"{output}: for {loaded.host.triple}: {sources}", markup=False)
