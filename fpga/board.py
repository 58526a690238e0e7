"""The base of all boards: a name, an FPGA, a flow that builds for it, and the points it is built at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.fpga.cells import Capacity
from tilewright.isa.config import NpuConfig

if TYPE_CHECKING:
    from tilewright.fpga.flows.flow import Flow

BLOCK_RAM, SDRAM = "bram", "sdram"
#: Kinds of the NPU's memory, with a title for tables.
MEMORIES = {BLOCK_RAM: "block RAM", SDRAM: "SDRAM"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """Clock, memory and serial line of a configuration built for a board.

    Attributes:
        clock_mhz: clock of the NPU.
        memory: one of MEMORIES.
        memory_kib, baud: its size, and the serial line; 0 where the NPU uses the memory and the bus of a processor.
        seed: seed of a placement that reaches the clock.
    """

    clock_mhz: float
    memory_kib: int
    baud: int = 3_000_000
    memory: str = BLOCK_RAM
    seed: int = 1


@dataclass(frozen=True)
class Design:
    """The design built for a board: its top module, and the clocks in MHz of the NPU and its memory; `memory_mhz` is 0
    where the memory has none of its own.
    """

    top: Any
    mhz: float
    memory_mhz: float = 0


@dataclass(frozen=True, kw_only=True)
class Board(ABC):
    """One board.

    Attributes:
        name: the name for `--board`.
        title: title for tables.
        capacity: capacity of the FPGA.
        points: configurations known to fit, by preset name, the one to begin with first; others are built at `other`.
        other: point for configurations without one of their own.
    """

    name: str
    title: str
    capacity: Capacity
    points: Mapping[str, Point] = field(default_factory=dict)
    other: Point = Point(clock_mhz=20, memory_kib=64, baud=2_000_000)

    @abstractmethod
    def flow(self) -> Flow:
        """The tools that build for the board. Raises `FpgaError` where there are none."""

    @abstractmethod
    def design(self, config: NpuConfig, point: Point) -> Design:
        """The design of a configuration at a point. Raises `FpgaError` for one the board cannot have."""

    def describe(self, config: NpuConfig, design: Design, directory: Path) -> None:  # noqa: B027 - nothing, by default
        """Writes further files for the bitstream into the folder of a build."""
