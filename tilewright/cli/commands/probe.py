"""`tilewright probe`."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from tilewright.cli import arguments, terminal
from tilewright.cli.group import MISTAKE
from tilewright.driver.address import open_transport
from tilewright.driver.board import probe


@click.command(
    "probe",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright probe serial:/dev/ttyUSB0\n"
        "  tilewright probe 'serial:/dev/ttyUSB0?baud=1000000'\n"
        "  tilewright probe uio:npu0 --json -\n"
    ),
)
@click.argument("address")
@click.option(
    "--wait",
    type=arguments.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another process that holds the board.",
)
@arguments.json_option
def command(address: str, wait: float, json_path: str | None) -> int:
    """Say what the board at ADDRESS is: configuration, memory, state. It is not changed.

    ADDRESS is one of serial:PORT, uio:NAME, pcie:SLOT?size=BYTES, socket:PATH. The exit code is 2 if the board cannot
    be used.
    """
    terminal.prepare_json(json_path)
    with terminal.Working(f"asking {address}"):
        info = probe(open_transport(address.removeprefix("board://")), wait=wait)
    if terminal.emit_json(json_path, asdict(info)):
        table = Table(show_header=False)
        rows = {
            "address": info.name,
            "identity": f"0x{info.identity:08x}, version {info.version}",
            "configuration": f"{info.config or 'no preset'} ({info.fingerprint})",
            "memory": f"{info.size:,} bytes from 0x{info.base:x}",
            "state": info.state,
        }
        for name, value in (rows | info.details | ({"error": info.error} if info.error else {})).items():
            table.add_row(name, value)
        terminal.table_console().print(table)
    if info.problem:
        click.echo(f"tilewright: error: {info.name}: {info.problem}", err=True)
        return MISTAKE
    return 0
