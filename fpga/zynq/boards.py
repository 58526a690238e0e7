"""Boards with a Zynq: the NPU stands beside the processors and uses their memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tilewright.common.text import suggest
from tilewright.fpga.board import Board, Design, Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.zynq.overlay import OVERLAY, overlay
from tilewright.fpga.zynq.processing_systems import WINDOW, ZYNQ7, ZYNQMP, ProcessingSystem
from tilewright.isa.config import MAX_OFFSET_BITS, NpuConfig
from tilewright.isa.timing import MemoryTiming

if TYPE_CHECKING:
    from tilewright.fpga.flows.xilinx7.flow import Zynq7

#: The configuration, for `compile --config`.
CONFIG = "npu.toml"


#: Point of configurations without one of their own: memory and bus are the processors'.
OTHER = Point(clock_mhz=25, memory_kib=0, baud=0)

#: Share of the DRAM's bandwidth that its controller lets through (the processing system's manual, UG585, 22.3.2).
DRAM_SHARE = 0.75


@dataclass(frozen=True, kw_only=True)
class ZynqBoard(Board):
    """One board. Its points are those of the open flow.

    Attributes:
        system: its processing system.
        part: full name of the FPGA.
        board_part: name of the vendor's board files, "" if the tool ships none; with a pattern the newest is taken.
        export_clock_mhz: clock of the vendor's flow.
        memory_bytes: DRAM.
        memory_mbytes: highest DRAM bandwidth, in millions of bytes a second; 0 if unknown.
    """

    other: Point = OTHER
    system: ProcessingSystem
    part: str
    board_part: str
    export_clock_mhz: float
    memory_bytes: int
    memory_mbytes: int = 0

    @property
    def family(self) -> Literal["xc7", "xcup"]:
        """The family's name in `tilewright.fpga.bare.resources`."""
        return "xc7" if self.system is ZYNQ7 else "xcup"

    def check(self, config: NpuConfig) -> None:
        """Raises `FpgaError` for a configuration the memory port cannot serve."""
        most = self.system.address_bits
        if not MAX_OFFSET_BITS <= config.axi_address_bits <= most:
            accepted = most if most == MAX_OFFSET_BITS else f"{MAX_OFFSET_BITS}..{most}"
            raise FpgaError(f"{self.name}: axi_address_bits must be {accepted}, not {config.axi_address_bits}")

    def flow(self) -> Zynq7:
        """The open flow of the board, for Zynq-7000 only; see `Board.flow`."""
        if self.family != "xc7":
            raise FpgaError(
                f"{self.name}: there are no open place-and-route tools for {self.part}; "
                f"`tilewright fpga export --board {self.name}` writes a project for the vendor's"
            )
        from tilewright.fpga.flows.xilinx7.flow import Zynq7

        return Zynq7(self.part, self.capacity)

    def design(self, config: NpuConfig, point: Point) -> Design:
        """The NPU beside the processing system."""
        from tilewright.fpga.flows.xilinx7.tools import find
        from tilewright.fpga.zynq.system import Ps7Top, ZynqSystem

        self.check(config)
        try:
            system = ZynqSystem(config, self.system.registers, WINDOW)
        except ValueError as error:  # the bus
            raise FpgaError(f"{self.name}: {error}") from None
        return Design(Ps7Top(system, find().ps7_inputs()), point.clock_mhz)

    def memory_timing(self, config: NpuConfig, mhz: float) -> MemoryTiming:
        """Timing of the DRAM behind the HP port for the cycle-level simulator, at a clock of the NPU. The latency of
        the first beat was not measured; it is the default of `MemoryTiming`.

        Raises:
            FpgaError: the bandwidth of its DRAM is unknown.
        """
        if not self.memory_mbytes:
            raise FpgaError(f"{self.name} has the memory of its processor, whose timing is not known")
        interval = max(1.0, config.bus_bytes * mhz / (DRAM_SHARE * self.memory_mbytes))
        return MemoryTiming(read_interval=interval, write_interval=interval)

    def describe(self, config: NpuConfig, design: Design, directory: Path) -> None:
        """Writes the device-tree overlay, and the configuration (`npu.toml`)."""
        from tilewright.fpga.flows.xilinx7.flow import IMAGE

        (directory / CONFIG).write_text(config.to_toml(), encoding="utf-8")
        text = overlay(self.system, self.title, design.mhz, IMAGE)
        (directory / OVERLAY).write_text(text, encoding="utf-8")


ZYNQ_BOARDS: dict[str, ZynqBoard] = {
    board.name: board
    for board in (
        ZynqBoard(
            name="pynq_z2",
            title="TUL PYNQ-Z2",
            system=ZYNQ7,
            part="xc7z020clg400-1",
            board_part="tul.com.tw:pynq-z2:part0:1.0",
            capacity=Capacity(lut=53200, ff=106400, dsp=220, bram=280),
            export_clock_mhz=100,
            memory_bytes=512 << 20,
            memory_mbytes=2100,  # 16 bits of DDR3 at 1,050 million transfers a second
            points={
                "wide": Point(clock_mhz=66, memory_kib=0, baud=0),
                "pynq": Point(clock_mhz=66, memory_kib=0, baud=0),
            },
        ),
        ZynqBoard(
            name="ultra96_v2",
            title="Avnet Ultra96-V2",
            system=ZYNQMP,
            part="xczu3eg-sbva484-1-i",
            board_part="avnet.com:ultra96v2:part0:1.2",
            capacity=Capacity(lut=70560, ff=141120, dsp=360, bram=432),
            export_clock_mhz=150,
            memory_bytes=2 << 30,
        ),
        ZynqBoard(
            name="zcu104",
            title="Xilinx ZCU104",
            system=ZYNQMP,
            part="xczu7ev-ffvc1156-2-e",
            board_part="xilinx.com:zcu104:part0:1.1",
            capacity=Capacity(lut=230400, ff=460800, dsp=1728, bram=624),
            export_clock_mhz=200,
            memory_bytes=2 << 30,
        ),
        ZynqBoard(
            name="kv260",
            title="Xilinx Kria KV260",
            system=ZYNQMP,
            part="xck26-sfvc784-2LV-c",
            board_part="xilinx.com:kv260_som:part0:*",
            capacity=Capacity(lut=117120, ff=234240, dsp=1248, bram=288),
            export_clock_mhz=150,
            memory_bytes=4 << 30,
        ),
    )
}


def zynq_board_named(name: str) -> ZynqBoard:
    """The board of this name. Raises `FpgaError` listing the boards."""
    if name not in ZYNQ_BOARDS:
        raise FpgaError(f"unknown Zynq board {name!r}{suggest(name, ZYNQ_BOARDS)}; boards: {', '.join(ZYNQ_BOARDS)}")
    return ZYNQ_BOARDS[name]
