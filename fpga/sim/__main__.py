"""Simulated boards from the command line.

python -m tilewright.fpga.sim serial --config tiny                        # prints the terminal to open
python -m tilewright.fpga.sim serial --board ulx3s_85f --config small     # the SoC of that board's bitstream
python -m tilewright.fpga.sim serial --board ulx3s_85f --sdram            # the same with --memory sdram
python -m tilewright.fpga.sim axi --config base --socket /tmp/npu.sock
"""

from __future__ import annotations

import argparse
import signal
import sys

from tilewright.common.errors import TilewrightError
from tilewright.fpga.board import SDRAM
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.sim.axi import AxiBoard
from tilewright.fpga.sim.pty import SerialBoard, board_line, soc_line
from tilewright.isa.config import NpuConfig

CLOCK_HZ, BAUD = 24_000_000, 3_000_000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.fpga.sim", description="A board without a board, until Ctrl-C."
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    serial = kinds.add_parser("serial", help="the SoC of small boards behind a pseudo-terminal")
    serial.add_argument("--board", choices=BOARDS, help="memory, clock and baud rate as in this board's bitstream")
    serial.add_argument("--memory", type=int, default=1 << 16, metavar="BYTES", help="without --board (%(default)s)")
    serial.add_argument("--sdram", action="store_true", help="with the SDRAM of the board, not its block RAM")
    axi = kinds.add_parser("axi", help="the NPU and a memory behind a Unix socket")
    axi.add_argument("--memory", type=int, default=1 << 26, metavar="BYTES", help="window (default %(default)s)")
    axi.add_argument("--socket", required=True, metavar="PATH", help="made, and taken away at the end")
    for kind in (serial, axi):
        kind.add_argument("--config", default="tiny", help="preset or file (default %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Runs the command line; returns the exit status."""
    arguments = _arguments()
    try:
        config = NpuConfig.load(arguments.config)
        board: AxiBoard | SerialBoard
        if arguments.kind == "axi":
            board = AxiBoard(config, arguments.socket, size=arguments.memory)
            address = f"socket:{arguments.socket}"
        else:
            if arguments.board:
                memory = SDRAM if arguments.sdram else None
                line, baud = board_line(BOARDS[arguments.board], config, memory)
            elif arguments.sdram:
                raise FpgaError("--sdram needs a --board")
            else:
                line, baud = soc_line(config, memory_bytes=arguments.memory, clock_hz=CLOCK_HZ, baud=BAUD), BAUD
            board = SerialBoard(line)
            address = f"serial:{board.path}?baud={baud}&seconds=10"
    except (TilewrightError, ValueError) as error:
        print(f"tilewright.fpga.sim: error: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # ends the pause
    with board:
        print(f"a board with {config.name} at board://{address}", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
