"""`tilewright fpga`: bitstreams with open tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tilewright import registry
from tilewright.cli import arguments, terminal
from tilewright.cli.commands import fpga_flash, fpga_resources, fpga_zynq
from tilewright.cli.group import Group
from tilewright.errors import UsageError
from tilewright.fpga import build as builder
from tilewright.fpga import points
from tilewright.fpga.board import MEMORIES, SDRAM, Board, Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.fit import require_fit
from tilewright.fpga.report import Report, read_report
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS
from tilewright.isa.config import NpuConfig

#: Adds the options of a network that runs without a host, as `network` of the command.
_network_options: Callable[[arguments.Command], arguments.Command] = registry.service("network without a host")


@click.group(
    "fpga",
    cls=Group,
    lazy=registry.commands_of("fpga"),
    no_args_is_help=True,
    epilog=(
        "\b\nExamples:\n"
        "  tilewright fpga boards\n"
        "  tilewright fpga build --board ulx3s_85f --config tiny -o bits\n"
        "  tilewright fpga flash bits\n"
    ),
)
def command() -> None:
    """Bitstreams for small boards, with yosys and nextpnr from pip.

    A bitstream holds the NPU, memory, and a serial bridge by which a host loads and runs programs. On boards with a
    Zynq the NPU stands beside the processors instead and uses their memory.
    """


command.add_command(fpga_flash.flash)
command.add_command(fpga_resources.resources)
command.add_command(fpga_zynq.export)
command.add_command(fpga_zynq.fetch_tools)


@command.command(
    epilog=(
        "\b\nExamples:\n"
        "  tilewright fpga build --board ulx3s_85f --config tiny -o bits\n"
        "  tilewright fpga build --board ulx3s_85f --memory sdram -o bits\n"
        "  tilewright fpga build --board ulx3s_85f --config small --clock-mhz 60 -o bits --json -\n"
        "  tilewright fpga build --board ulx3s_85f --config tiny --standalone model.onnx -o alone\n"
        "  tilewright fpga build --board pynq_z2 -o bits\n"
    )
)
@click.option("--board", "board_name", metavar="BOARD", help="A board of `fpga boards`.")
@click.option(
    "--all", "everything", is_flag=True, help="Every board and configuration of `fpga boards`, a folder each."
)
@arguments.config_option
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder to write; made if missing."
)
@click.option(
    "--clock-mhz", type=arguments.FloatRange(1, 400), help="Clock of the SoC; default: the board's for the preset."
)
@click.option(
    "--memory",
    type=click.Choice(list(MEMORIES)),
    help="What the NPU's memory is made of; default: the board's, which is block RAM.",
)
@click.option("--memory-kib", type=click.IntRange(1, 1 << 20), help="Size of the block RAM; default: the board's.")
@click.option("--baud", type=click.IntRange(1200, 12_000_000), help="Of the serial line; default 3000000.")
@click.option("--seed", type=click.IntRange(1, 1 << 30), help="Of the placement; default: the board's for the preset.")
@click.option(
    "--tries",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Placements with this seed and those after it, of which the best is routed.",
)
@_network_options
@click.option("--anyway", is_flag=True, help="Build also what cannot fit by the area model.")
@arguments.json_option
def build(
    board_name: str | None,
    everything: bool,
    config: str | None,
    output: Path,
    clock_mhz: float | None,
    memory: str | None,
    memory_kib: int | None,
    baud: int | None,
    seed: int | None,
    tries: int,
    anyway: bool,
    json_path: str | None,
    network: Any,
) -> None:
    """Build a bitstream: LUTs, block RAM, clock and slowest path are reported.

    OUTPUT then holds the bitstream, report.json and the logs of the tools. The same command gives the same bytes.
    A configuration that cannot fit by the area model is refused at once, before synthesis, which takes minutes.
    The configuration is the first that `fpga boards` lists for the board, unless another is given.
    """
    given = {"clock_mhz": clock_mhz, "memory": memory, "memory_kib": memory_kib, "baud": baud}
    if everything:
        if board_name or config or network.standalone or any(given.values()):
            raise UsageError("--all takes boards, configurations and their settings from `fpga boards`")
        jobs: list[tuple[Board, NpuConfig, Point, Path]] = [
            (b, NpuConfig.load(n), p, output / f"{b.name}_{n}") for b in BOARDS.values() for n, p in b.points.items()
        ]
    elif board_name:
        board = network.board(board_name) if network.standalone else points.board_named(board_name)
        chosen = NpuConfig.load(config or next(iter(board.points), "tiny"))
        jobs = [(board, chosen, points.point_of(board, chosen, **given), output)]  # type: ignore[arg-type]
    else:
        raise UsageError("give a --board, or --all")
    if output.exists() and not output.is_dir():
        raise UsageError(f"cannot write {output}: not a folder")
    network.check()
    for target, configuration, point, _ in [] if anyway else jobs:
        require_fit(target, configuration, point)
    terminal.prepare_json(json_path)
    if network.standalone:
        network.write(*jobs[0], quiet=json_path == "-")
    reports = []
    for target, configuration, point, folder in jobs:
        with terminal.Working("generating", log=True) as working:
            result = builder.build(
                target, configuration, point, folder, seed=seed, tries=tries, progress=working.update
            )
        reports.append(result)
        if json_path != "-":
            _print(result)
    found = [r.to_dict() for r in reports]
    terminal.emit_json(json_path, found if everything else found[0])


@command.command(epilog="\b\nExamples:\n  tilewright fpga boards\n  tilewright fpga boards --json -\n")
@arguments.json_option
def boards(json_path: str | None) -> None:
    """List the boards and the configurations known to fit."""
    rows = [
        {
            "board": b.name,
            "title": b.title,
            "lut": b.capacity.lut,
            "dsp": b.capacity.dsp,
            "bram": b.capacity.bram,
            "sdram_kib": b.sdram.size >> 10 if b.sdram else 0,
            "points": {
                n: {"clock_mhz": p.clock_mhz, "memory": p.memory, "memory_kib": p.memory_kib, "baud": p.baud}
                for n, p in b.points.items()
            },
        }
        for b in BOARDS.values()
    ]
    rows += [
        {
            "board": b.name,
            "title": b.title,
            "lut": b.capacity.lut,
            "dsp": b.capacity.dsp,
            "bram": b.capacity.bram,
            "points": {n: {"clock_mhz": p.clock_mhz} for n, p in b.points.items()},
            "export_clock_mhz": b.export_clock_mhz,
        }
        for b in ZYNQ_BOARDS.values()
    ]
    if not terminal.emit_json(json_path, rows):
        return
    table = Table("board", "FPGA", "LUT", "DSP", "BRAM", "configurations", box=None)
    for row in rows:
        points: dict[str, Any] = row["points"]  # type: ignore[assignment]
        known = ", ".join(
            f"{n} ({p['clock_mhz']:g} MHz{f', {kib} KiB' if (kib := p.get('memory_kib')) else ''}"
            f"{' of SDRAM' if p.get('memory') == SDRAM else ''})"
            for n, p in points.items()
        )
        if row.get("sdram_kib"):
            known = f"{known}{', ' if known else ''}--memory sdram ({row['sdram_kib']} KiB)"
        if "export_clock_mhz" in row:
            known = f"{known}{', ' if known else ''}fpga export ({row['export_clock_mhz']:g} MHz)"
        table.add_row(*(str(row[k]) for k in ("board", "title", "lut", "dsp", "bram")), known)
    terminal.table_console().print(table)


@command.command(epilog="\b\nExamples:\n  tilewright fpga report bits\n")
@click.argument("folder", type=click.Path(path_type=Path))
@arguments.json_option
def report(folder: Path, json_path: str | None) -> None:
    """Show the report of a build again."""
    found = read_report(folder)
    terminal.prepare_json(json_path)
    if terminal.emit_json(json_path, found.to_dict()):
        _print(found)


def _print(result: Report) -> None:
    table = Table(show_header=False, box=None)
    table.add_row("board", f"{result.board}, configuration {result.config} ({result.fingerprint})")
    for row in result.rows():
        table.add_row(*row)
    terminal.table_console().print(table)
