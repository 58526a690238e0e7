"""One-line errors for the commands of area and clock, and for those that calibrate them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from tilewright.common.errors import TilewrightError
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.points import board_named
from tilewright.fpga.uart_board import UartBoard
from tilewright.fpga.zynq.boards import ZynqBoard


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns a `TilewrightError` into one line on standard error and exit code 1."""
    try:
        yield
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None


def chosen_family(family: str | None, board: str | None) -> str:
    """Returns the family of a board, or the named one; ecp5 where neither is given.

    Raises:
        FpgaError: both are given, or the board is unknown.
    """
    if board is None:
        return family or "ecp5"
    if family is not None:
        raise FpgaError("--board says the family: no --family")
    found = board_named(board)
    assert isinstance(found, UartBoard | ZynqBoard)
    return found.family
