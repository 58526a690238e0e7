"""`SerialBoard`: a Verilated SoC at the far end of a pseudo-terminal, like a small board seen by its host."""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Callable
from pathlib import Path

from tilewright.common.rtl_sources import rtl_sources
from tilewright.fpga.board import SDRAM
from tilewright.fpga.memory import OnChipMemory
from tilewright.fpga.points import point_of
from tilewright.fpga.sdram.chip import SdramChip
from tilewright.fpga.sdram.memory import SdramMemory
from tilewright.fpga.sim import sdram as sdram_model
from tilewright.fpga.sim.line import Line, MemoryEdges, SimulatedLine
from tilewright.fpga.sim.sdram import with_sdram_text
from tilewright.fpga.soc import SIMULATION_ID, Soc
from tilewright.fpga.uart_board import UartBoard
from tilewright.hw.verilog import component_text
from tilewright.isa.config import NpuConfig

_ROOT = Path(__file__).resolve().parents[2]
#: Cycles between two looks at the terminal.
SLICE = 4000
#: The clock stands still once the line was quiet for so many cycles, until the next byte. A driver that waits for the
#: end of a run asks for the state far more often.
QUIET_CYCLES = 1_000_000


def soc_line(
    config: NpuConfig,
    *,
    memory_bytes: int = 0,
    sdram: SdramChip | None = None,
    sdram_hz: int = 0,
    edges: MemoryEdges | None = None,
    shared: bool = False,
    clock_hz: int,
    baud: int,
    board_id: str = SIMULATION_ID,
) -> SimulatedLine:
    """The SoC of `tilewright.fpga.soc`, Verilated: with `memory_bytes` of on-chip memory, or with a chip at its pins,
    which has a clock of `sdram_hz`; `shared`: it is that of the NPU. `edges`: edges of both clocks, if their phase
    matters.

    Raises:
        BuildError: it cannot be built. ValueError: a size or baud rate that cannot be.
    """

    def text() -> str:
        def soc(memory: OnChipMemory | SdramMemory) -> Soc:
            return Soc(config, memory, clock_hz=clock_hz, baud=baud, board_id=board_id)

        if sdram is None:
            return component_text(soc(OnChipMemory(config, memory_bytes)), "soc")
        memory = SdramMemory(config, sdram, sdram_hz, shared=shared)
        return with_sdram_text(soc(memory), sdram, sdram_hz, "soc", shared=shared, from_lock=True)

    folders = [_ROOT / name for name in ("isa/link", "fpga", "fpga/bridge", "fpga/sdram")]
    sources = [
        *rtl_sources(),
        *(p for folder in folders for p in folder.glob("*.py")),
        Path(sdram_model.__file__),
        sdram_model.MODEL,
    ]
    own_hz = 0 if shared else sdram_hz
    memory_name = memory_bytes if sdram is None else f"sdram{sdram.size}-{own_hz}"
    stem = f"soc-{config.fingerprint}-{memory_name}-{clock_hz}-{baud}-{board_id}"
    title = f"the simulation of a SoC with {config.name!r}"
    edges = edges or MemoryEdges.of(clock_hz, own_hz)
    return SimulatedLine(stem, title, "soc", text, sorted(sources), clock_hz=clock_hz, baud=baud, memory=edges)


def board_line(board: UartBoard, config: NpuConfig, memory: str | None = None) -> tuple[SimulatedLine, int]:
    """The SoC of a board's bitstream, with its memory, clock and baud rate, without PLL and pins; and the baud rate.
    `memory` is one of `tilewright.fpga.board.MEMORIES`, None = the board's own choice.

    Raises:
        BuildError: it cannot be built. FpgaError: the board's PLL does not make the clock, or the board does not have
            this memory.
    """
    point = point_of(board, config, memory=memory)
    pll = board.clocks(point)
    line = soc_line(
        config,
        memory_bytes=point.memory_kib << 10,
        sdram=board.sdram if point.memory == SDRAM else None,
        sdram_hz=pll.memory_hz,
        shared=board.sdram_shares_clock,
        clock_hz=pll.output_hz,
        baud=point.baud,
        board_id=board.identity,
    )
    return line, point.baud


class SerialBoard:
    """One simulated board. `path` is the terminal a driver opens.

    Args:
        line: the design.
        to_board, to_host: change bytes on their way, to make a bad line.
    """

    def __init__(
        self, line: Line, *, to_board: Callable[[bytes], bytes] = bytes, to_host: Callable[[bytes], bytes] = bytes
    ) -> None:
        self._line, self._to_board, self._to_host = line, to_board, to_host
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)  # kept open, so that the terminal outlives its clients
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self._reset_asked = self._closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> SerialBoard:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Runs the board in a thread of its own."""
        self._thread.start()

    def reset(self) -> None:
        """Presses the reset button."""
        self._reset_asked = True

    def close(self) -> None:
        """Ends the thread and the simulation."""
        if self._closed:
            return
        self._closed = True
        self._thread.join()
        os.close(self._master)
        os.close(self._slave)
        self._line.close()

    def _serve(self) -> None:
        out = bytearray()
        quiet = 0
        while not self._closed:
            idle = quiet >= QUIET_CYCLES
            readable, writable, _ = select.select([self._master], [self._master] if out else [], [], 0.02 * idle)
            if readable:
                quiet = 0
                self._line.send(self._to_board(os.read(self._master, 4096)))
            if writable:
                del out[: os.write(self._master, out)]
            if self._reset_asked:
                self._reset_asked = False
                self._line.reset()
            if not idle or readable:
                received = self._line.run(SLICE)
                quiet = 0 if received or self._line.queued else quiet + SLICE
                out += self._to_host(received)
