"""`tilewright config`."""

from __future__ import annotations

import click
from rich.table import Table

from tilewright.cli import arguments, terminal
from tilewright.cli.group import Group
from tilewright.errors import UsageError
from tilewright.isa.config import PRESETS, NpuConfig


@click.group(
    "config",
    cls=Group,
    epilog="\b\nExamples:\n  tilewright config list\n  tilewright config show small --toml > my.toml\n",
)
def command() -> None:
    """List and show NPU configurations."""


@command.command("list", epilog="\b\nExamples:\n  tilewright config list --json -\n")
@arguments.json_option
def list_(json_path: str | None) -> None:
    """List the presets."""
    if not terminal.emit_json(json_path, {name: c.to_dict() for name, c in PRESETS.items()}):
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
    "show", epilog="\b\nExamples:\n  tilewright config show base\n  tilewright config show my.toml --json -\n"
)
@click.argument("name")
@click.option(
    "--json",
    "json_path",
    metavar="FILE|-",
    is_flag=False,
    flag_value="-",  # of `--json` at the end, without a file
    help="Write it as a JSON file of a configuration; - for standard output, and nothing else.",
)
@click.option("--toml", is_flag=True, help="As a TOML file.")
def show(name: str, json_path: str | None, toml: bool) -> None:
    """Show every field of a preset or file NAME.

    Its JSON and TOML are files for --config. One that was edited is called as its file, not as the preset it was.
    """
    terminal.prepare_json(json_path)
    if json_path == "-" and toml:
        raise UsageError("standard output is either --json - or --toml, not both")
    config = NpuConfig.load(name)
    if not terminal.emit_json(json_path, config.to_dict()):
        return
    if toml:
        click.echo(config.to_toml(), nl=False)
    else:
        width = max(map(len, config.to_dict()))
        for field, value in config.to_dict().items():
            click.echo(f"{field:{width}}  {value}")
        click.echo(f"{'fingerprint':{width}}  {config.fingerprint}")
