"""Loads a build into its board: runs the loader of the board, which has to be on the PATH."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.report import Report, read_report
from tilewright.fpga.standalone import record
from tilewright.fpga.uart_board import Loader


@dataclass(frozen=True)
class Flashed:
    """The result of flashing a board.

    Attributes:
        report: report of the build.
        command: command that was run for the bitstream.
        permanent: True if the bitstream survives a power cycle of the board.
        model: the network whose image is in the flash memory now; None where the build was for a board with a host.
    """

    report: Report
    command: tuple[str, ...]
    permanent: bool
    model: str | None = None


def flash(folder: Path, *, permanent: bool = False, output: IO[str] | None = None) -> Flashed:
    """Loads the bitstream of a build into its board; before it, where there is one, an image into the flash memory.

    Args:
        folder: folder of a build.
        permanent: writes the board's flash memory, from where the bitstream is loaded at power-on. Boards without
            another way always get this.
        output: destination of the loader's output; None = that of this process.

    Raises:
        FpgaError: no build there, a bitstream that is not the one of the report, a board without a loader, a loader
            that is not installed or fails.
    """
    report = read_report(folder)
    board = BOARDS.get(report.board)
    if board is None:
        raise FpgaError(
            f"{report.board} is not loaded over a cable: its Linux loads {report.bitstream}.bin, see docs/zynq.md"
        )
    bitstream = folder / report.bitstream
    try:
        data = bitstream.read_bytes()
    except OSError as error:
        raise FpgaError(f"{bitstream}: {error.strerror}; a build that misses its clock leaves no bitstream") from None
    if hashlib.sha256(data).hexdigest() != report.sha256:
        raise FpgaError(f"{bitstream} is not the bitstream of {folder}'s report; build it again")
    loader = board.loader
    tool = shutil.which(loader.tool)
    if tool is None:
        raise FpgaError(f"{loader.tool}, which loads the {board.title}, is not on the PATH; {loader.source}")
    alone = record.read(folder)
    if alone is not None:
        if loader.data is None:
            raise FpgaError(f"{loader.tool} writes no image to the flash memory of the {board.title}")
        _run(tool, (loader.tool, *loader.data, str(alone.offset), str(folder / record.IMAGE)), loader, output)
    volatile = None if permanent else loader.volatile
    command = (loader.tool, *(loader.permanent if volatile is None else volatile), str(bitstream))
    _run(tool, command, loader, output)
    return Flashed(report, command, volatile is None, alone.model if alone else None)


def _run(tool: str, command: tuple[str, ...], loader: Loader, output: IO[str] | None) -> None:
    done = subprocess.run([tool, *command[1:]], stdout=output, check=False)
    if done.returncode != 0:
        raise FpgaError(f"`{' '.join(command)}` ended with exit code {done.returncode}; {loader.hint}")
