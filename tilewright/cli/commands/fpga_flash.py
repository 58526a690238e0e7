"""`tilewright fpga flash`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tilewright.cli import arguments, terminal
from tilewright.driver.transport.serial import DEFAULT_BAUD
from tilewright.fpga import flash as flasher


@click.command(epilog=("\b\nExamples:\n  tilewright fpga flash bits\n  tilewright fpga flash bits --permanent\n"))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--permanent", is_flag=True, help="Into the board's flash memory: loaded again whenever power comes.")
@arguments.json_option
def flash(folder: Path, permanent: bool, json_path: str | None) -> None:
    """Put the bitstream in FOLDER, which a build wrote, on its board.

    It is there until the power goes, except with --permanent, and on the OrangeCrab, whose bootloader always writes the
    flash memory. The loader of the board must be on the PATH: openFPGALoader, dfu-util for the OrangeCrab.
    """
    terminal.prepare_json(json_path)
    done = flasher.flash(folder, permanent=permanent, output=sys.stderr if json_path == "-" else None)
    facts: dict[str, Any] = {"board": done.report.board, "config": done.report.config, "sha256": done.report.sha256}
    facts |= {"command": list(done.command), "permanent": done.permanent, "model": done.model}
    if terminal.emit_json(json_path, facts):
        stays = "in its flash memory" if done.permanent else "until the power goes"
        click.echo(f"{done.report.config} is on the {done.report.board}, {stays}")
        if done.model is not None:
            click.echo(f"the image of {done.model} is in its flash memory")
            click.echo(f"next: `tilewright fpga ask {folder} --port /dev/ttyUSB0`")
            return
        option = f"?baud={done.report.baud}" if done.report.baud != DEFAULT_BAUD else ""
        click.echo(f"next: tilewright probe 'serial:/dev/ttyUSB0{option}'")
