"""`tilewright config`."""

from __future__ import annotations

import click
from rich.table import Table

from isa.config import PRESETS, NpuConfig
from tilewright.cli import arguments, terminal


@click.group(
    "config", epilog="\b\nExamples:\n  tilewright config list\n  tilewright config show small --toml > my.toml\n"
)
def command() -> None:
    """List and show NPU configurations."""


@command.command("list", epilog="\b\nExamples:\n  tilewright config list --json -\n")
@arguments.json_option
def list_(json_path: str | None) -> None:
    """List the presets."""
    if json_path is not None:
        terminal.emit_json(json_path, {name: c.to_dict() for name, c in PRESETS.items()})
    if json_path == "-":
        return
    table = Table()
    for heading in ("preset", "MAC/cycle", "array", "scratchpads", "bus", "fingerprint"):
        table.add_column(heading)
    for name, c in PRESETS.items():
        array = f"{c.block_in} x {c.block_out}"
        memory = f"{c.scratchpad_bytes / 1024:.0f} KiB"
        table.add_row(name, str(c.macs_per_cycle), array, memory, f"{c.axi_data_bits} bit", c.fingerprint)
    terminal.table_console().print(table)


@command.command(
    "show", epilog="\b\nExamples:\n  tilewright config show base\n  tilewright config show my.toml --json\n"
)
@click.argument("name")
@click.option("--json", "form", flag_value="json", help="As a JSON file.")
@click.option("--toml", "form", flag_value="toml", help="As a TOML file.")
def show(name: str, form: str | None) -> None:
    """Show every field of a preset or file NAME."""
    config = NpuConfig.load(name)
    if form == "json":
        click.echo(config.to_json(), nl=False)
    elif form == "toml":
        click.echo(config.to_toml(), nl=False)
    else:
        width = max(map(len, config.to_dict()))
        for field, value in config.to_dict().items():
            click.echo(f"{field:{width}}  {value}")
        click.echo(f"{'fingerprint':{width}}  {config.fingerprint}")
