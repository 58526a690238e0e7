"""The supported boards by name: one file each."""

from __future__ import annotations

from tilewright.fpga.boards import orangecrab_85f, tang_nano_20k, ulx3s_85f
from tilewright.fpga.uart_board import UartBoard

BOARDS: dict[str, UartBoard] = {
    module.BOARD.name: module.BOARD for module in (ulx3s_85f, orangecrab_85f, tang_nano_20k)
}
