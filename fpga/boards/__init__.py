"""The boards there are, by name: one file each."""

from __future__ import annotations

from fpga.board import Board
from fpga.boards import orangecrab_85f, tang_nano_20k, ulx3s_85f

BOARDS: dict[str, Board] = {module.BOARD.name: module.BOARD for module in (ulx3s_85f, orangecrab_85f, tang_nano_20k)}
