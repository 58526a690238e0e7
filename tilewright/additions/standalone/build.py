"""Builds the image of a board without a host from a model, and the files beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tilewright as tw
from tilewright.errors import UsageError
from tilewright.fpga.board import Point
from tilewright.fpga.standalone import image, record
from tilewright.fpga.standalone.boards import ALONE, StandaloneBoard, standalone_board
from tilewright.fpga.standalone.record import Exchange
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.standalone.firmware import HOST, Firmware, boot_program, firmware


def board_with_core(name: str) -> StandaloneBoard:
    """A board with its boot program.

    Raises:
        FpgaError: not one of `ALONE`. UsageError: no C compiler.
    """
    standalone_board(name, b"")  # the board, before anything is compiled
    return standalone_board(name, boot_program(ALONE[name].place))


def program_of(model: Path, config: NpuConfig) -> Program:
    """The network of a file, compiled now or already.

    Raises:
        UsageError: a program for another host or another configuration. TilewrightError: it cannot be compiled.
    """
    if not model.is_file() or not Program.is_program(model):
        return tw.compile_program(model, config, host=HOST)
    program = tw.load(model)
    if program.config.fingerprint != config.fingerprint:
        raise UsageError(
            f"{model} is compiled for {program.config.name} ({program.config.fingerprint}), "
            f"the bitstream has {config.name} ({config.fingerprint})"
        )
    return program


def write_image(
    folder: Path,
    board: StandaloneBoard,
    config: NpuConfig,
    point: Point,
    model: Path,
    *,
    name: str | None = None,
    exchange: Exchange = Exchange(),  # noqa: B008
    progress: Callable[[str], None] = lambda text: None,
) -> Firmware:
    """Writes image and record of a network into the folder of a build.

    Args:
        name: what `profile` says, the program's unless given.
        exchange: what goes over the serial line.

    Raises:
        TilewrightError: the network cannot be compiled, or does not fit the board.
    """
    progress("compiling the network")
    program = program_of(model, config)
    progress("compiling the firmware")
    made = firmware(program, model=name, exchange=exchange)
    image.check_room(len(made.image), made.needed, board.alone.place, point.memory_kib << 10, model.name)
    try:
        record.write(folder, board, config, point, program.name, made.image, exchange)
        program.save(folder / record.PROGRAM)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    return made
