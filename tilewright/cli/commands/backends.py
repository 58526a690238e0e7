"""`tilewright backends`."""

from __future__ import annotations

import click
from rich.table import Table

from tilewright.cli import arguments, terminal
from tilewright.runtime.backends import BACKENDS


@click.command(
    "backends", epilog="\b\nExamples:\n  tilewright backends\n  tilewright run model.onnx --backend functional\n"
)
@arguments.json_option
def command(json_path: str | None) -> None:
    """List the devices programs can run on."""
    found = {b.name: {"summary": b.summary, "available": b.available} for b in BACKENDS.values()}
    if not terminal.emit_json(json_path, found):
        return
    table = Table()
    for heading in ("backend", "what", "available"):
        table.add_column(heading)
    for b in BACKENDS.values():
        table.add_row(f"{b.name}://ADDRESS" if b.scheme else b.name, b.summary, "yes" if b.available else "no")
    terminal.table_console().print(table)
