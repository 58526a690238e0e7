"""`NetlistLine`: the netlist of a bitstream, cell by cell, at the far end of a serial line.

What is simulated is what nextpnr places: after synthesis, mapping and all that `tilewright.fpga.flows` changes in the
netlist; or what it has routed, by the configuration that the bitstream is made of.
`tilewright.fpga.sim.line` runs what synthesis begins with.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np

from tilewright.common.native import Library, Owner, shared_library
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Module, read_module
from tilewright.fpga.flows.synthesis import NAME, NETLIST
from tilewright.fpga.sdram.chip import SdramChip
from tilewright.fpga.sim import line
from verification.netlists import ecp5_cells, gowin_cells
from verification.netlists.cells import ONE, ZERO, Numbers
from verification.netlists.sdram_pins import COMMANDS, SDRAM, memory_edges, nets_of, rules_of

_HERE = Path(__file__).resolve().parent
_PINS = Path(line.__file__).resolve().parent  # models of what is at the pins, which Verilated boards have too
_SOURCES = [
    *(_HERE / name for name in ("netlist.cpp", "cells.h", "netlist.h", "sdram_pins.h")),
    *(_PINS / name for name in ("clocks.h", "sdram.h", "uart.h")),
]
#: Pins of the serial line, as Amaranth names them.
RX, TX = "uart_0__rx__io", "uart_0__tx__io"


@functools.cache
def _library() -> ctypes.CDLL:
    flags = ("-O3", "-march=native", f"-I{_PINS}")
    path = shared_library(Library(_SOURCES[0], flags, _SOURCES, "rtl", "netlist", "the simulator of netlists"))
    library = ctypes.CDLL(str(path))
    handle, size, number, u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_uint64
    tables, counts = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int32)
    data = ctypes.c_void_p
    for name, result, *arguments in (
        ("create", handle, number, number, data, counts, tables, ctypes.c_double, number, number, number, data, data),
        ("destroy", None, handle),
        ("loops", number, handle),
        ("start", number, handle, u64),
        ("reset", None, handle),
        ("flip", None, handle, number, number),
        ("seen", ctypes.c_uint32, handle, number),
        ("send", None, handle, ctypes.c_char_p, size),
        ("run", size, handle, u64, ctypes.c_char_p, size),
        ("queued", size, handle),
        ("level", number, handle, number),
        ("evaluations", u64, handle),
        ("cycles", u64, handle),
        ("broken", ctypes.c_char_p, handle, ctypes.POINTER(ctypes.c_int64)),
        ("commands", u64, handle, number),
    ):
        function = getattr(library, f"tw_netlist_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def read_netlist(directory: Path, name: str = NETLIST) -> Module:
    """Returns the top module that a build has left in its folder, in the file of this name.

    Raises:
        FpgaError: there is none, or it cannot be read.
    """
    path = directory / name
    try:
        return read_module(path.read_bytes(), NAME)
    except OSError as error:
        raise FpgaError(f"cannot read netlist {path}: {error.strerror}; make it with tilewright fpga build") from None
    except (ValueError, KeyError, TypeError):
        raise FpgaError(f"{path} is no netlist of yosys with a module {NAME!r}") from None


def numbers_of(module: Module) -> Numbers:
    """Returns the cells of a flat module of either family. Raises FpgaError as `NetlistLine`."""
    return (gowin_cells if gowin_cells.is_gowin(module) else ecp5_cells).numbers_of(module)


class NetlistLine(Owner):
    """A netlist with a serial line and, perhaps, a PLL, which all clocks are of; the same methods as `SimulatedLine`.

    Args:
        cells: a flat module of cells of an ECP5 or a Gowin FPGA, or what has been read of a routed one (`ecp5_routed`).
        clock_hz: of the clock of the serial line: the first output of the PLL, or the one clock there is.
        baud: of the serial line.
        sdram: at the pins of the resource `sdram`, or None.
        seed: not 0 = at the start, registers that no reset reaches and memories have random contents, and what is read
            from a word of a block RAM while it is written is random.

    Attributes:
        scrambled: registers that were random at the start.
        luts: names of the cells that are a LUT of up to four inputs.
        lut_inputs: how many inputs each of them has, constants and repeated ones not counted.
        memory_edges: edges of the clocks of the serial line and of the SDRAM's controller; None without one.

    Raises:
        BuildError: no C++ compiler. FpgaError: cells without a model, clocks that are not of one PLL, loops in the
            logic, an SDRAM without its pins, or pins that are input and output without it.
    """

    def __init__(
        self, cells: Module | Numbers, *, clock_hz: int, baud: int, sdram: SdramChip | None = None, seed: int = 0
    ) -> None:
        numbers = cells if isinstance(cells, Numbers) else numbers_of(cells)
        missing = [name for name in (RX, TX) if name not in numbers.pins]
        if missing:
            raise FpgaError(f"the netlist has no pin {missing[0]}")
        self._pins = numbers.pins
        self.luts = numbers.lut_names
        self.lut_inputs = [len({*lut[:4]} - {ZERO, ONE}) for lut in numbers.luts[: len(self.luts)]]
        tables = [np.ascontiguousarray(table) for table in numbers.tables()]
        counts = (ctypes.c_int32 * len(tables))(*(len(table) for table in tables))
        addresses = (ctypes.c_void_p * len(tables))(*(table.ctypes.data for table in tables))
        for name, (net, off) in numbers.outputs.items():
            if not (sdram and name.startswith(SDRAM)) and (off != ZERO or numbers.pins[name] != net):
                raise FpgaError(f"no model of what is at pin {name}, which is not always an output")
        self._library = _library()
        pins = (numbers.pins[RX], numbers.pins[TX], numbers.locked)
        edges = np.array(numbers.edges, np.int64)
        self._has_sdram = sdram is not None
        self._unit_ns = 1e9 / clock_hz / numbers.edges[0][0]
        chip = [rules_of(sdram, self._unit_ns), nets_of(numbers)] if sdram else []
        self.memory_edges = memory_edges(numbers) if sdram else None
        chip_addresses = [array.ctypes.data for array in chip] if chip else [None, None]
        made = self._library.tw_netlist_create(
            numbers.nets, len(edges), edges.ctypes.data, counts, addresses, clock_hz / baud, *pins, *chip_addresses
        )
        self._own(made, self._library.tw_netlist_destroy)
        if loops := self._library.tw_netlist_loops(self._handle):
            raise FpgaError(f"{loops} cells of the netlist are in loops without a register")
        self.cycles_per_byte = -(-10 * clock_hz // baud)
        self.scrambled = 0
        self.start(seed)

    def start(self, seed: int = 0) -> None:
        """Everything as after power-on, or random as `seed` of the class says."""
        self.scrambled = self._library.tw_netlist_start(self._handle, seed)

    def flip(self, lut: int, bit: int) -> None:
        """Inverts one of the 16 bits of a LUT, by its place in `luts`: a fault."""
        if not (0 <= lut < len(self.luts) and 0 <= bit < 16):
            raise ValueError(f"lut and bit must be 0..{len(self.luts) - 1} and 0..15, not {lut} and {bit}")
        self._library.tw_netlist_flip(self._handle, lut, bit)

    def seen(self, lut: int) -> int:
        """Bits of a LUT, by its place in `luts`, that its inputs have named since the start: bit i stands for bit i. A
        run does not depend on the others."""
        return int(self._library.tw_netlist_seen(self._handle, lut))

    def level(self, pin: str) -> int:
        """Returns the level of a pin, by its name, as the netlist drives or reads it."""
        return int(self._library.tw_netlist_level(self._handle, self._pins[pin]))

    @property
    def evaluations(self) -> int:
        """Cells evaluated since the class was made."""
        return int(self._library.tw_netlist_evaluations(self._handle))

    @property
    def cycles(self) -> int:
        """Cycles of the clock of the serial line since the start."""
        return int(self._library.tw_netlist_cycles(self._handle))

    @property
    def sdram_fault(self) -> str:
        """The first rule of the SDRAM that was broken since the start, and when; empty = none."""
        time = ctypes.c_int64()
        rule = self._library.tw_netlist_broken(self._handle, ctypes.byref(time)) if self._has_sdram else None
        return f"{rule.decode()}, after {time.value * self._unit_ns:.1f} ns" if rule else ""

    @property
    def sdram_commands(self) -> dict[str, int]:
        """Number of SDRAM commands since the start, by name."""
        numbered = enumerate(COMMANDS if self._has_sdram else ())
        return {name: int(self._library.tw_netlist_commands(self._handle, number)) for number, name in numbered}

    # As `SimulatedLine`.

    def send(self, data: bytes) -> None:
        """Queues bytes for `rx`."""
        self._library.tw_netlist_send(self._handle, data, len(data))

    def run(self, cycles: int) -> bytes:
        """Runs the clock; returns what came out of `tx`."""
        most = cycles // self.cycles_per_byte + 16
        buffer = ctypes.create_string_buffer(most)
        count = self._library.tw_netlist_run(self._handle, cycles, buffer, most)
        return buffer.raw[:count]

    @property
    def queued(self) -> int:
        """Bytes given to `send` that have not begun to leave."""
        return int(self._library.tw_netlist_queued(self._handle))

    def reset(self) -> None:
        """The reset of the board: the PLL loses its lock and finds it again."""
        self._library.tw_netlist_reset(self._handle)
