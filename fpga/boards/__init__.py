"""The supported boards by name: one file each."""

from __future__ import annotations

from tilewright.fpga.boards import (
    arty_a7_100t,
    crosslink_nx_evn,
    nexys_a7_100t,
    orangecrab_85f,
    tang_nano_20k,
    ulx3s_85f,
)
from tilewright.fpga.uart_board import UartBoard

_MODULES = (ulx3s_85f, orangecrab_85f, tang_nano_20k, arty_a7_100t, nexys_a7_100t, crosslink_nx_evn)
BOARDS: dict[str, UartBoard] = {module.BOARD.name: module.BOARD for module in _MODULES}
