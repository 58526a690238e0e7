"""`SimulatedLine`: a Verilated design at the far end of a serial line."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from tilewright.common.native import Owner
from tilewright.hw.sim.build import Design, build_library

_HERE = Path(__file__).resolve().parent


class Line(Protocol):
    """A design at the far end of a serial line."""

    @property
    def cycles_per_byte(self) -> int: ...
    @property
    def queued(self) -> int: ...
    def send(self, data: bytes) -> None: ...
    def run(self, cycles: int) -> bytes: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, *arguments in (
        ("create", handle, ctypes.c_double, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64),
        ("destroy", None, handle),
        ("reset", None, handle),
        ("faults", None, handle, ctypes.c_uint32),
        ("flash", None, handle, ctypes.c_char_p, size),
        ("send", None, handle, ctypes.c_char_p, size),
        ("run", size, handle, ctypes.c_uint64, ctypes.c_char_p, size),
        ("queued", size, handle),
        ("sdram_fault", ctypes.c_uint32, handle),
    ):
        function = getattr(library, f"tw_line_{name}")
        function.restype, function.argtypes = result, arguments
    return library


@dataclass(frozen=True)
class MemoryEdges:
    """Edges of two clocks: their periods in a common unit, and the delay of memory_clk after a rising edge of clk."""

    clock: int
    memory: int
    first: int = 0

    @staticmethod
    def of(clock_hz: int, memory_hz: int) -> MemoryEdges | None:
        """The edges of clocks that have one at the same time; None without the second clock."""
        ratio = Fraction(memory_hz, clock_hz)
        return MemoryEdges(ratio.numerator, ratio.denominator) if memory_hz else None


class SimulatedLine(Owner):
    """A design with ports clk, rst, rx, tx, and perhaps memory_clk. Built on first use.

    Args:
        stem: names it in the cache.
        title: name for the message of a build.
        top: name of its top module.
        verilog: makes the Verilog text.
        sources: Python files the text depends on.
        clock_hz, baud: clock and baud rate of the design; they decide the cycles of a bit.
        memory: edges of memory_clk, if the design has it.

    Raises:
        BuildError: no Verilator or no C++ compiler.
    """

    def __init__(
        self,
        stem: str,
        title: str,
        top: str,
        verilog: Callable[[], str],
        sources: Sequence[Path],
        *,
        clock_hz: int,
        baud: int,
        memory: MemoryEdges | None = None,
    ) -> None:
        design = Design(stem, title, top, _HERE / "line.cpp", verilog, sources)
        self._library = _load(build_library(design))
        edges = (memory.clock, memory.memory, 2 * memory.first) if memory else (1, 0, 0)
        self._own(self._library.tw_line_create(clock_hz / baud, *edges), self._library.tw_line_destroy)
        self.cycles_per_byte = -(-10 * clock_hz // baud)

    def send(self, data: bytes) -> None:
        """Queues bytes for `rx`."""
        self._library.tw_line_send(self._handle, data, len(data))

    def run(self, cycles: int) -> bytes:
        """Runs the clock; returns the bytes that came out of `tx`."""
        most = cycles // self.cycles_per_byte + 16
        buffer = ctypes.create_string_buffer(most)
        count = self._library.tw_line_run(self._handle, cycles, buffer, most)
        return buffer.raw[:count]

    @property
    def queued(self) -> int:
        """Bytes given to `send` that have not begun to leave."""
        return int(self._library.tw_line_queued(self._handle))

    def reset(self) -> None:
        """Holds `rst` for a few cycles."""
        self._library.tw_line_reset(self._handle)

    def faults(self, value: int) -> None:
        """Sets the input `faults` of designs that have it."""
        self._library.tw_line_faults(self._handle, value)

    def set_flash(self, contents: bytes) -> None:
        """Gives the SPI flash memory of designs that have its pins (`flash_clk`, ...) its contents, from its first byte
        on; the rest is erased."""
        self._library.tw_line_flash(self._handle, contents, len(contents))

    @property
    def sdram_fault(self) -> int:
        """The SDRAM chip's first violation, by its number in sdram_chip.sv; 0 = none, or no such chip."""
        return int(self._library.tw_line_sdram_fault(self._handle))
