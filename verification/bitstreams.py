"""Bitstreams of the boards, each built as a user builds it: whether today's RTL gets there, and how fast it is.

    python -m verification.bitstreams --board ulx3s_85f --config small
    python -m verification.bitstreams                                    every configuration of every board (hours)

What happens to a placement is luck: another RTL, or the same with other names, may want another seed. For each a file
bitstream_BOARD_CONFIG.json is written, also where the build fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.common.paths import ROOT
from tilewright.cli import terminal
from tilewright.fpga import build as builder
from tilewright.fpga import points
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.report import Report
from tilewright.fpga.uart_board import UartBoard
from tilewright.isa.config import preset
from verification.measured import SOURCES, write_with_command
from verification.netlists.runs import digest_of_design


def main(
    arguments: list[str],
    build: Callable[..., Report] = builder.build,
    digest: Callable[[str, str], str] = digest_of_design,
) -> int:
    """Runs the command line; returns 1 where a build fails.

    Args:
        build, digest: as for `measure`.
    """
    parser = argparse.ArgumentParser(prog="python -m verification.bitstreams", description=__doc__.splitlines()[0])
    parser.add_argument("--board", choices=BOARDS, help="all, if not given")
    parser.add_argument("--config", help="all of the board, if not given")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "signoff", help="where to write")
    options = parser.parse_args(arguments)
    points = [
        (board, config)
        for board in BOARDS.values()
        for config in board.points
        if options.board in (None, board.name) and options.config in (None, config)
    ]
    if not points:
        known = sorted({config for board in BOARDS.values() for config in board.points})
        parser.error(f"no board has a configuration {options.config!r}: known are {', '.join(known)}")
    failed = False
    for board, config in points:
        figures = measure(board, config, build, digest)
        print(figures, flush=True)
        failed = failed or "failed" in figures
        path = options.folder / f"bitstream_{board.name}_{config}.json"
        write_with_command(path, parser, ["--board", board.name, "--config", config], figures)
    return int(failed)


def measure(
    board: UartBoard, config: str, build: Callable[..., Report], digest: Callable[[str, str], str]
) -> dict[str, Any]:
    """Figures of one build at the board's point, or why it failed.

    Args:
        build: builds a bitstream, as `tilewright.fpga.build.build`.
        digest: the digest of the design for a board and a configuration, by their names.
    """
    figures: dict[str, Any] = {SOURCES: digest(board.name, config)}
    machine = preset(config)
    point = points.point_of(board, machine)
    with tempfile.TemporaryDirectory() as folder, terminal.Working(f"{board.name}, {config}") as working:
        try:
            report = build(board, machine, point, Path(folder), progress=working.update)
        except FpgaError as error:
            return figures | {"failed": str(error).replace(folder, "...")}
    return figures | report.to_dict()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
