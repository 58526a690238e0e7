"""`tilewright fpga export` and `fetch-tools`: boards with a Zynq."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli import arguments, terminal
from tilewright.errors import UsageError
from tilewright.fpga.flows.xilinx7 import tools
from tilewright.fpga.zynq import export as exporter
from tilewright.fpga.zynq.boards import zynq_board_named
from tilewright.isa.config import NpuConfig


@click.command(
    "export",
    epilog=("\b\nExamples:\n  tilewright fpga export --board ultra96_v2 --config base -o ultra96\n  make -C ultra96\n"),
)
@click.option("--board", "board_name", required=True, metavar="BOARD", help="A board with a Zynq of `fpga boards`.")
@arguments.config_option
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write; made if missing."
)
@click.option("--clock-mhz", type=arguments.FloatRange(1, 400), help="Clock of the NPU; default: the board's.")
@arguments.json_option
def export(board_name: str, config: str | None, output: Path, clock_mhz: float | None, json_path: str | None) -> None:
    """Write a project for the vendor's tool: Verilog, Tcl to a bitstream, device-tree overlay.

    The configuration is `base` unless another is given.
    """
    board, chosen = zynq_board_named(board_name), NpuConfig.load(config or "base")
    if output.exists() and not output.is_dir():
        raise UsageError(f"cannot write {output}: not a folder")
    terminal.prepare_json(json_path)
    with terminal.Working("generating"):
        try:
            written = exporter.write(board, chosen, output, clock_mhz)
        except OSError as error:
            raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    facts = {"board": board.name, "config": chosen.name, "fingerprint": chosen.fingerprint}
    clock = clock_mhz or board.export_clock_mhz
    if terminal.emit_json(json_path, facts | {"clock_mhz": clock, "files": [str(path) for path in written]}):
        click.echo(f"{output}: {', '.join(path.name for path in written)}")
        click.echo(f"next: make -C {output}")


@click.command("fetch-tools", epilog="\b\nExamples:\n  tilewright fpga fetch-tools\n")
@click.option("--mirror", default=tools.MIRROR, show_default=True, metavar="URL", help="Of Debian's archive.")
@arguments.json_option
def fetch_tools(mirror: str, json_path: str | None) -> None:
    """Unpack the open tools of Zynq-7000 and Artix-7 into the cache folder: 31 MB to download, 274 MB on disk.

    nextpnr-himbaechel-xilinx, prjxray and prjxray-database of Debian unstable, with the libraries they need. apt checks
    their signatures; nothing is installed. Tools on the PATH are used instead if they are there.
    """
    terminal.prepare_json(json_path)
    with terminal.Working(f"{mirror} {tools.SUITE}") as working:
        packages, nbytes = tools.fetch(mirror, working.update)
    result = {"mirror": mirror, "suite": tools.SUITE, "packages": packages, "bytes": nbytes}
    if terminal.emit_json(json_path, result | {"folder": str(tools.folder())}):
        click.echo(f"{len(packages)} packages, {nbytes / 1e6:.0f} MB, from {mirror} {tools.SUITE}")
        click.echo(f"unpacked in {tools.folder()}")
