"""`tilewright doctor`."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich import box
from rich.table import Table

from tilewright.cli import arguments, doctor, terminal


@click.command("doctor", epilog="\b\nExamples:\n  tilewright doctor\n  tilewright doctor --json -\n")
@arguments.json_option
def command(json_path: str | None) -> None:
    """Say what works on this machine, and which command brings what is missing."""
    found = list(doctor.findings())
    if not terminal.emit_json(json_path, [asdict(finding) for finding in found]):
        return
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("", "what", "for", "found, or what brings it"):
        table.add_column(heading, overflow="fold")
    for finding in found:
        table.add_row("yes" if finding.found else "no", finding.what, finding.use, finding.found or finding.command)
    terminal.table_console().print(table)
