"""A netlist of ECP5 cells as nextpnr places it: what its cells compute, and what comes into those that keep a state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tilewright.fpga.flows.block_registers import MEMORY, MULTIPLIER, REGISTER
from tilewright.fpga.flows.netlist import Cell, Module, number, text
from verification.equivalence.sweep import Sweep
from verification.equivalence.units import Bit, Column, Literals, Logic, Unit, ordered, product, table
from verification.mutants.gates import FALSE, TRUE
from verification.netlists.ecp5_cells import block_words, carry_tables

SMALL_RAM, PIN = "TRELLIS_DPR16X4", "TRELLIS_IO"
#: Declares the cells, for yosys.
LIBRARY = "+/lattice/cells_sim_ecp5.v +/lattice/cells_bb_ecp5.v"
_LOGIC = ("LUT4", "CCU2C", "PFUMX", "L6MUX21", SMALL_RAM, MULTIPLIER)
#: What the pad of a pin is called where a design names a buffer of one direction.
_PADS = {"INPUT": {"B": "I"}, "OUTPUT": {"B": "O"}}
#: Of a small RAM: bits of an address; columns.
ADDRESS_PINS = SMALL_COLUMNS = 4
#: The table of a multiplexer: the second input where the third one is 1.
_CHOOSE = 0b11001010
#: By the width of a port of a block RAM: the lowest bit of the address that names a row.
_PLACE = {36: 5, 18: 4, 9: 3, 4: 2, 2: 1, 1: 0}


class Pin(NamedTuple):
    """A data pin of a cell with memory: its name without the letters of the direction, such as "A3"."""

    cell: str
    place: str


@dataclass(frozen=True)
class Next:
    """Next value of a register bit: `value` with the clock, 1 at once where `set_now`."""

    value: int
    clock: int
    set_now: int = FALSE


@dataclass(frozen=True)
class Written:
    """A write port of a memory column: enable, address and data."""

    enable: int
    address: tuple[int, ...]
    data: int
    clock: int


@dataclass
class Netlist:
    """A netlist.

    Attributes:
        starts: of each bit that keeps a state, "0" or "1".
        columns: of memories, by cells and places of their pins.
        banks: of small RAMs that hold some rows of a larger memory: bits of the address above that of a row in them.
    """

    module: Module
    starts: dict[Bit, str] = field(default_factory=dict)
    columns: dict[str, dict[str, Column]] = field(default_factory=lambda: defaultdict(dict))
    banks: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for _, cell in self.cells(REGISTER):
            self.starts[cell["connections"]["Q"][0]] = "1" if text(cell, "REGSET", "RESET") == "SET" else "0"
        for _, cell in self.cells(MULTIPLIER):
            if _registered(cell):
                self.starts.update((bit, "0") for bit in _pins(cell, "P", 36))
        for _, cell in self.cells(MEMORY):
            self.starts.update((bits[0], "0") for port, bits in cell["connections"].items() if port.startswith("DO"))

    def cells(self, *types: str) -> Iterator[tuple[str, Cell]]:
        """Returns the cells of some types, by name."""
        return ((name, cell) for name, cell in self.module["cells"].items() if cell["type"] in types)

    def boxes(self) -> Iterator[tuple[str, str, int, Bit, bool]]:
        """Pins of all other cells and of the module itself: cell, port, place, bit, whether the cell drives it."""
        for name, cell in self.module["cells"].items():
            if cell["type"] in (*_LOGIC, REGISTER, MEMORY, "$scopeinfo"):
                continue
            pads = _PADS.get(text(cell, "DIR", "INPUT"), {}) if cell["type"] == PIN else {}
            for port, bits in cell["connections"].items():
                label = pads.get(port, port)
                driven = label == "O" if cell["type"] == PIN else cell["port_directions"][port] == "output"
                yield from ((name, label, n, bit, driven) for n, bit in enumerate(bits))
        for name, port in self.module["ports"].items():
            yield from (("", name, n, bit, port["direction"] != "output") for n, bit in enumerate(port["bits"]))

    def pins(self, *, driven: bool) -> dict[tuple[str, str, int], Bit]:
        """Bits of `boxes` that come from them, or go to them, by cell, port and place."""
        return {(cell, port, n): bit for cell, port, n, bit, given in self.boxes() if given == driven}

    def build(self, logic: Logic, known: Literals) -> Literals:
        """Returns the literals of all bits, given those of states and outputs of boxes. Logic equal to a known node
        becomes that node."""
        units: list[Unit] = []
        for name, cell in self.cells(*_LOGIC):
            if cell["type"] == "CCU2C":
                units += _carry(name, cell)
            elif cell["type"] == SMALL_RAM:
                given = [cell["connections"]["DO"][int(place)] for place in self.columns[name]]
                read = partial(_read, [*self.columns[name].values()], self.banks.get(name, ()))
                units.append(Unit(_bits(cell, "RAD", ADDRESS_PINS), given, read))
            elif cell["type"] != MULTIPLIER:
                units.append(_logic(cell))
            elif not _registered(cell):
                units.append(Unit(_factors(cell), _pins(cell, "P", 36), _product))
        return logic.compute(ordered(units), known)

    def next(self, logic: Logic, literals: Literals) -> dict[Bit, Next]:
        """Returns the next values of registers, and of those behind products."""
        gates, found = logic.gates, {}
        for _, cell in self.cells(REGISTER):
            enable = _muxed(cell, literals, "CE", "1")
            reset, clock = (_muxed(cell, literals, port, port) for port in ("LSR", "CLK"))
            bit, mode = cell["connections"]["Q"][0], text(cell, "SRMODE", "LSR_OVER_CE")
            value = gates.choose(literals[bit], _pin(cell, literals, "DI"), enable)
            if mode == "ASYNC" and self.starts[bit] == "1":
                found[bit] = Next(value, clock, reset)
            elif mode == "ASYNC" and reset != FALSE:
                raise ValueError(f"register {bit}: no proof about one that is cleared without a clock")
            else:
                reset = gates.both(reset, enable) if mode == "CE_OVER_LSR" else reset
                found[bit] = Next(gates.choose(value, int(self.starts[bit]), reset), clock)
        for _, cell in self.cells(MULTIPLIER):
            if _registered(cell):
                if (cell["connections"]["CE0"], cell["connections"]["RST0"]) != (["1"], ["0"]):
                    raise ValueError("no proof about a product whose register has an enable or a reset")
                clock = literals[cell["connections"]["CLK0"][0]]
                values = _product(logic, *(literals[bit] for bit in _factors(cell)))
                found.update((bit, Next(v, clock)) for bit, v in zip(_pins(cell, "P", 36), values, strict=True))
        return found

    def read_next(self, logic: Logic, literals: Literals, now: Mapping[Pin, int]) -> dict[Pin, Next]:
        """Returns the next outputs of block RAMs before their registers, given those of now."""
        gates, found = logic.gates, {}
        for name, cell in self.cells(MEMORY):
            _, letter, width = _letters(cell)
            pin = partial(_pin, cell, literals)
            address = _row(cell, literals, letter, width)
            enable = gates.both(pin(f"CE{letter}"), pin(f"WE{letter}") ^ 1)
            for place, (memory, column) in self.columns[name].items():
                (value,) = logic.read(memory, [column], address)
                found[Pin(name, place)] = Next(gates.choose(now[Pin(name, place)], value, enable), pin(f"CLK{letter}"))
        return found

    def output_next(self, gates: Sweep, literals: Literals, pin: Pin, latch: int) -> Next:
        """Returns the next value of the register behind an output of a block RAM."""
        cell = self.module["cells"][pin.cell]
        letter, bit = pin.place[0], cell["connections"][f"DO{pin.place}"][0]
        value = gates.choose(literals[bit], latch, _pin(cell, literals, f"OCE{letter}"))
        return Next(value, _pin(cell, literals, f"CLK{letter}"))

    def written(self, gates: Sweep, literals: Literals) -> Iterator[tuple[Pin, Written]]:
        """Yields the write port of each pin that stands for a column of a memory."""
        for name, cell in self.cells(SMALL_RAM):
            pin = partial(_pin, cell, literals)
            enable = _muxed(cell, literals, "WRE", "WRE")
            address = tuple(pin("WAD", n) for n in range(ADDRESS_PINS))
            for place in self.columns[name]:
                yield Pin(name, place), Written(enable, address, pin("DI", int(place)), pin("WCK"))
        for name, cell in self.cells(MEMORY):
            letter, _, width = _letters(cell)
            pin = partial(_pin, cell, literals)
            address = tuple(_row(cell, literals, letter, width))
            for place in self.columns[name]:
                side, n = place[0], int(place[1:])
                data = f"DI{side}{n}" if width == 36 else f"DI{letter}{n}"
                enables = [pin(f"CE{letter}"), pin(f"WE{letter}")]
                if width >= 18:  # a bit of the address for each byte
                    enables.append(pin(f"AD{letter}{n // 9 + 2 * (width == 36 and side == 'B')}"))
                enable = gates.both(gates.both(enables[0], enables[1]), enables[-1])
                yield Pin(name, place), Written(enable, address, pin(data), pin(f"CLK{letter}"))

    def start(self, pin: Pin, rows: int) -> str:
        """Returns the initial values of a column, a "0" or "1" for each row."""
        cell = self.module["cells"][pin.cell]
        if cell["type"] == SMALL_RAM:
            value = number(cell, "INITVAL")
            return "".join(str(value >> SMALL_COLUMNS * row + int(pin.place) & 1) for row in range(rows))
        words, width = block_words(cell), _letters(cell)[2]
        if not any(words):
            return "0" * rows
        side, n = pin.place[0], int(pin.place[1:])
        found = []
        for row in range(rows):
            at = row << _PLACE[width]
            word = words[(at | 16 * (width == 36 and side == "B")) >> 4]
            low = {36: 0, 18: 0, 9: 9 * (at >> 3 & 1)}.get(width, 9 * (at >> 3 & 1) + (at & 7))
            found.append(str(word >> low + n & 1))
        return "".join(found)


def _registered(cell: Cell) -> bool:
    return text(cell, "REG_OUTPUT_CLK", "NONE") != "NONE"


def is_registered(cell: Cell, pin: Pin) -> bool:
    """Returns whether a block RAM has a register behind this output."""
    return text(cell, f"REGMODE_{pin.place[0]}", "NOREG") == "OUTREG"


def outputs(cell: Cell) -> Iterator[tuple[str, Bit]]:
    """Yields place and bit of each output of a cell with memory."""
    if cell["type"] == SMALL_RAM:
        yield from ((str(n), bit) for n, bit in enumerate(cell["connections"]["DO"]))
    else:
        names = (port for port in cell["connections"] if port.startswith("DO"))
        yield from ((name.removeprefix("DO"), cell["connections"][name][0]) for name in names)


def _letters(cell: Cell) -> tuple[str, str, int]:
    """Returns the write port and the read port of a block RAM, "A" or "B", and their width in bits."""
    ports = cell["connections"]
    writing = [x for x in "AB" if ports.get(f"WE{x}", ["0"]) != ["0"]]
    widths = {number(cell, f"DATA_WIDTH_{x}", 18) for x in "AB"}
    resets = [ports.get(f"RST{x}", ["0"]) for x in "AB"]
    if len(writing) != 1 or len(widths) != 1 or resets != [["0"], ["0"]]:
        raise ValueError(f"a block RAM with ports {ports}: no proof about one that has not one port to write")
    return writing[0], "B" if writing == ["A"] else "A", widths.pop()


def _row(cell: Cell, literals: Literals, letter: str, width: int) -> list[int]:
    return [_pin(cell, literals, f"AD{letter}{n}") for n in range(_PLACE[width], 14)]


def _muxed(cell: Cell, literals: Literals, port: str, default: str) -> int:
    """Returns a pin behind the multiplexer that can take its complement or a constant in its place."""
    setting = text(cell, f"{port}MUX", default)
    return {"1": TRUE, "0": FALSE}.get(setting, _pin(cell, literals, port) ^ (setting == "INV"))


def _pin(cell: Cell, literals: Literals, port: str, n: int = 0) -> int:
    bits = cell["connections"].get(port, ())
    return literals[bits[n]] if n < len(bits) else FALSE


def _bits(cell: Cell, port: str, count: int) -> list[Bit]:
    return [*cell["connections"].get(port, ()), *["0"] * count][:count]


def _pins(cell: Cell, letter: str, count: int) -> list[Bit]:
    return [_bits(cell, f"{letter}{n}", 1)[0] for n in range(count)]


def _factors(cell: Cell) -> list[Bit]:
    return [*_pins(cell, "A", 18), *_pins(cell, "B", 18), *_bits(cell, "SIGNEDA", 1), *_bits(cell, "SIGNEDB", 1)]


def _product(logic: Logic, *factors: int) -> list[int]:
    *values, a_signed, b_signed = factors
    if not {a_signed, b_signed} <= {FALSE, TRUE}:
        raise ValueError("no proof about a product that is signed now and then")
    return product(logic.gates, values[:18], values[18:], (bool(a_signed), bool(b_signed)), 36)


def _read(places: Sequence[Column], bank: Sequence[int], logic: Logic, *address: int) -> list[int]:
    return [logic.read(memory, [column], [*address, *bank])[0] for memory, column in places]


def _logic(cell: Cell) -> Unit:
    if cell["type"] == "LUT4":
        inputs = [_bits(cell, port, 1)[0] for port in "ABCD"]
        return Unit(inputs, cell["connections"]["Z"], partial(_tables, [number(cell, "INIT")]))
    ports = ("BLUT", "ALUT", "C0") if cell["type"] == "PFUMX" else ("D0", "D1", "SD")
    return Unit([_bits(cell, port, 1)[0] for port in ports], cell["connections"]["Z"], partial(_tables, [_CHOOSE]))


def _carry(name: str, cell: Cell) -> Iterator[Unit]:
    """Yields two bits of a chain."""
    inside = f"carry of {name}"
    for n, (carry, following) in enumerate(((*_bits(cell, "CIN", 1), inside), (inside, *_bits(cell, "COUT", 1)))):
        tables = carry_tables(number(cell, f"INIT{n}"), text(cell, f"INJECT1_{n}", "YES") == "YES")
        inputs = [*(_bits(cell, f"{port}{n}", 1)[0] for port in "ABCD"), carry]
        yield Unit(inputs, [*_bits(cell, f"S{n}", 1), following], partial(_tables, tables))


def _tables(tables: Sequence[int], logic: Logic, *inputs: int) -> list[int]:
    return [logic.gates.known(table(logic.gates, inputs, bits)) for bits in tables]
