"""`tilewright fpga resources`: cells of the bare NPU on an FPGA family."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from tilewright.cli import arguments, terminal
from tilewright.fpga.bare.resources import FAMILIES, synthesise
from tilewright.isa.config import NpuConfig


@click.command(
    "resources",
    epilog=(
        "\b\nExamples:\n"
        "  tilewright fpga resources tiny --family xc7\n"
        "  tilewright fpga resources tiny small --family xc7 --family xcup --json -\n"
    ),
)
@click.argument("configs", nargs=-1, required=True, metavar="PRESET|FILE...")
@click.option(
    "--family",
    "families",
    multiple=True,
    type=click.Choice([*FAMILIES]),
    default=("ecp5",),
    show_default=True,
    help="xc7 is Zynq-7000, xcup UltraScale+; repeatable.",
)
@arguments.json_option
def resources(configs: tuple[str, ...], families: tuple[str, ...], json_path: str | None) -> None:
    """Count the cells of the NPU alone after synthesis by yosys: minutes each, kept in the cache."""
    chosen = [NpuConfig.load(name) for name in configs]
    terminal.prepare_json(json_path)
    table = Table("configuration", "family", "LUT", "FF", "DSP", "block RAM", box=None)
    rows = []
    for config in chosen:
        for family in families:
            with terminal.Working(f"{config.name} on {family}"):
                found = synthesise(config, family)
            values = asdict(found)
            del values["fmax_mhz"]
            rows.append({"config": config.name, "family": family, "block_ram": FAMILIES[family].block} | values)
            memories = f"{found.bram} x {FAMILIES[family].block}"
            table.add_row(config.name, family, *(str(n) for n in (found.lut, found.ff, found.dsp)), memories)
    if terminal.emit_json(json_path, rows):
        terminal.table_console().print(table)
