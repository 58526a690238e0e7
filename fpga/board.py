"""What a board is: its FPGA, its clock and pins, and the points it is built at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fpga.clocking import Pll
from fpga.sdram.chip import SdramChip

BLOCK_RAM, SDRAM = "bram", "sdram"
#: What the NPU's memory is made of, with a title for tables.
MEMORIES = {BLOCK_RAM: "block RAM", SDRAM: "SDRAM"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """How a configuration is built for a board: clock, memory (one of MEMORIES) and its size, serial line; the seed of
    a placement that reaches the clock."""

    clock_mhz: float
    memory_kib: int
    baud: int = 3_000_000
    memory: str = BLOCK_RAM
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What an FPGA has; `bram` in blocks of 18 Kbit, `dsp` in multipliers of 18x18."""

    lut: int
    ff: int
    dsp: int
    bram: int


@dataclass(frozen=True, kw_only=True)
class Loader:
    """The program that puts a bitstream on a board.

    Attributes:
        tool: its name on the PATH.
        source: where to get it, for a message.
        volatile: arguments before the file that load it until the power goes; None = the board does not take that.
        permanent: those that write it to the board's flash memory.
        hint: what to look at when it fails, for a message.
    """

    tool: str
    source: str
    volatile: tuple[str, ...] | None
    permanent: tuple[str, ...]
    hint: str


def open_fpga_loader(name: str) -> Loader:
    """openFPGALoader, with its name of the board."""
    return Loader(
        tool="openFPGALoader",
        source="it is in many distributions (openfpgaloader) and at https://github.com/trabucayre/openFPGALoader",
        volatile=("-b", name),
        permanent=("-b", name, "-f"),
        hint="is the board plugged in, may you use the USB device?",
    )


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board.

    Attributes:
        name: what `--board` takes.
        title: for tables.
        identity: four letters the host reads from the bridge.
        family: "ecp5" or "gowin": which tools build it.
        capacity: of the FPGA.
        platform: makes the Amaranth platform: pins and device.
        clock: name of the platform's clock resource, `clock_hz` its frequency.
        loader: what puts a bitstream on it.
        pll: setting of the PLL for a frequency in Hz. Raises `FpgaError`.
        uart: (resource, number) of the serial line with `rx` and `tx`.
        leds: resources used as LEDs, at most as many as the SoC has.
        sdram: the chip at the platform's resource `sdram`, or None.
        points: configurations known to fit, by preset name; others are built at `other`.
        other: for configurations without a point of their own.
    """

    name: str
    title: str
    identity: str
    family: str
    capacity: Capacity
    platform: Callable[[], Any]
    clock_hz: int
    pll: Callable[[int], Pll]
    loader: Loader
    leds: tuple[tuple[str, int], ...] = tuple(("led", n) for n in range(4))
    sdram: SdramChip | None = None
    points: Mapping[str, Point] = field(default_factory=dict)
    other: Point = Point(clock_mhz=20, memory_kib=64, baud=2_000_000)
