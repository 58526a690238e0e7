"""The cells of a Gowin netlist (GW2A) as the numbers that `netlist.h` simulates.

What a cell does is written from Gowin's documents (CFU, BSRAM and SSRAM, DSP, Clock and GPIO user guides). A block RAM
has the bits, the ports and the addresses of one of an ECP5, so it is that one here; with 8 bits for a byte, the ninth
is left out. Edges of clocks are counted in sixteenths of a cycle, the steps of the phase of an rPLL's second output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Cell, Module, number, text
from verification.netlists.cells import (
    ASYNC,
    BLOCK_WORDS,
    ONE,
    SELECT,
    SET,
    ZERO,
    CellReader,
    Maker,
    Numbers,
)

#: DFF with the value and the kind of its reset, and whether it has an enable.
_FLIP_FLOP = re.compile(r"DFF(?P<falling>N?)(?P<reset>[SRPC]?)(?P<enable>E?)")
FLIP_FLOPS = tuple(f"DFF{n}{reset}{e}" for n in ("", "N") for reset in ("", *"SRPC") for e in ("", "E"))
#: The port of each kind of reset; those that set the register, and those that need no clock.
_RESETS = {"S": "SET", "R": "RESET", "P": "PRESET", "C": "CLEAR"}
_SETTING, _ASYNCHRONOUS = ("S", "P"), ("P", "C")
#: Two ports, or one that writes and one that reads; bits of a byte.
_BLOCKS = {"DPX9B": 9, "DPB": 8, "SDPX9B": 9, "SDPB": 8}
_WIDTHS = {9: (9, 18, 36), 8: (1, 2, 4, 8, 16, 32)}
#: Bytes of a row in the parameters of the contents, and how many rows there are; a byte as `cells.h` has it.
_ROW_BYTES, _ROWS, _BYTE = 32, 64, 9
#: Steps of a cycle.
_STEPS = 16


def numbers_of(module: Module) -> Numbers:
    """Returns the cells of a flat module. Raises FpgaError as `CellReader`."""
    return _Reader(module).numbers


class _Reader(CellReader):
    def makers(self) -> Mapping[str, Maker]:
        return {
            "GND": self.low, "VCC": self.high, "rPLL": self.pll, "ODDR": self.gives_clock, "IBUF": self.input_pin,
            "OBUF": self.output_pin, "TBUF": self.output_pin, "IOBUF": self.pin,
            **dict.fromkeys((f"LUT{n}" for n in range(1, 5)), self.lut),
            **dict.fromkeys((f"MUX2_LUT{n}" for n in range(5, 9)), self.select), "MUX2": self.select,
            **dict.fromkeys(FLIP_FLOPS, self.register),
            **dict.fromkeys((f"RAM16SDP{n}" for n in (1, 2, 4)), self.small_ram),
            "MULT9X9": self.multiplier, "MULT18X18": self.multiplier,
            "DPX9B": self.two_ports, "DPB": self.two_ports, "SDPX9B": self.write_and_read, "SDPB": self.write_and_read,
            "$scopeinfo": self.nothing,
        }  # fmt: skip

    def tied(self, name: str, cell: Cell, ports: Iterable[str]) -> None:
        """Raises FpgaError if a port, of which each bit must be 0, is something else."""
        for port in ports:
            if any(self.net(bit) != ZERO for bit in cell["connections"].get(port, ())):
                raise FpgaError(f"cell {name}: no model of {cell['type']} whose {port} is not 0")

    def wide(self, cell: Cell, port: str, count: int) -> list[int]:
        """Returns the nets of a port of several bits."""
        return [self.input(cell, port, i) for i in range(count)]

    # Constants, clocks and pins.

    def low(self, name: str, cell: Cell) -> None:
        self.nets[cell["connections"]["G"][0]] = ZERO

    def high(self, name: str, cell: Cell) -> None:
        self.nets[cell["connections"]["V"][0]] = ONE

    def pll(self, name: str, cell: Cell) -> None:
        """Makes the outputs of a PLL: the first one is clock 0, the second one has a phase."""
        self.tied(name, cell, ("RESET", "RESET_P", "FBDSEL", "IDSEL", "ODSEL", "PSDA", "DUTYDA"))
        self.numbers.locked = self.input(cell, "LOCK")
        later = int(text(cell, "PSDA_SEL", "0000"), 2)
        for output, first in (("CLKOUT", 0), ("CLKOUTP", later)):
            if output in cell["connections"]:
                self.pll_outputs[self.input(cell, output)] = _STEPS, first
        self.clock(cell, "CLKOUT")

    def gives_clock(self, name: str, cell: Cell) -> None:
        self.clock_out(name, cell, ("D0", "D1"), "CLK", "Q0")

    def input_pin(self, name: str, cell: Cell) -> None:
        self.pad(name, cell["connections"]["I"][0], self.input(cell, "O"))

    def output_pin(self, name: str, cell: Cell) -> None:
        driven = self.input(cell, "I"), self.input(cell, "OEN")
        self.pad(name, cell["connections"]["O"][0], driven[0], driven)

    def pin(self, name: str, cell: Cell) -> None:
        """Makes a pin; one that is input and output is the input."""
        driven = self.input(cell, "I"), self.input(cell, "OEN")
        self.pad(name, cell["connections"]["IO"][0], self.input(cell, "O"), driven)

    # Logic.

    def lut(self, name: str, cell: Cell) -> None:
        pins = self.inputs(cell, (f"I{i}" for i in range(4)))
        self.numbers.luts.append([*pins, ZERO, self.input(cell, "F"), number(cell, "INIT")])
        self.numbers.lut_names.append(name)

    def select(self, name: str, cell: Cell) -> None:
        self.numbers.luts.append([*self.inputs(cell, ("I0", "I1", "S0")), ZERO, ZERO, self.input(cell, "O"), SELECT])

    # What keeps a state.

    def register(self, name: str, cell: Cell) -> None:
        match = _FLIP_FLOP.fullmatch(cell["type"])
        assert match is not None
        kind = match["reset"]
        flags = SET * (kind in _SETTING) + ASYNC * (kind in _ASYNCHRONOUS)
        if number(cell, "INIT", flags & SET) != flags & SET:
            raise FpgaError(f"cell {name}: no model of {cell['type']} that begins with another value than its reset's")
        clock = self.clock(cell, "CLK", match["falling"] != "")
        enable = self.input(cell, "CE") if match["enable"] else ONE
        reset = self.input(cell, _RESETS[kind]) if kind else ZERO
        self.numbers.registers.append([self.input(cell, "D"), enable, reset, self.input(cell, "Q"), flags, clock])

    def small_ram(self, name: str, cell: Cell) -> None:
        nets = [net for port in ("RAD", "WAD", "DI", "DO") for net in self.wide(cell, port, 4)]
        tables = [number(cell, f"INIT_{bit}") for bit in range(4)]
        words = sum((table >> word & 1) << 4 * word + bit for bit, table in enumerate(tables) for word in range(16))
        halves = words & 0xFFFFFFFF, words >> 32
        self.numbers.small_rams.append([*nets, self.input(cell, "WRE"), *halves, self.clock(cell, "CLK")])

    def multiplier(self, name: str, cell: Cell) -> None:
        """A product of 18 bits or 9, perhaps with registers before and behind it, which are registers as others."""
        width = 18 if cell["type"] == "MULT18X18" else 9
        self.tied(name, cell, ("RESET", "ASEL", "BSEL"))
        factors = [self.factor(cell, letter, width) for letter in "AB"]
        outputs = self.wide(cell, "DOUT", 2 * width)
        if number(cell, "OUT_REG"):
            behind, outputs = outputs, self.new_nets(len(outputs))
            self.registers(cell, outputs, behind)
        signs = self.inputs(cell, ("ASIGN", "BSIGN"))
        if not set(signs) <= {ZERO, ONE}:
            raise FpgaError(f"cell {name}: no model of a factor that is signed at times")
        wide = [
            factor + [factor[-1] if sign == ONE else ZERO] * (18 - width)
            for factor, sign in zip(factors, signs, strict=True)
        ]
        out = outputs + [ZERO] * (36 - len(outputs))
        self.numbers.multipliers.append([*wide[0], *wide[1], *signs, *out, 0, 0])

    def factor(self, cell: Cell, letter: str, width: int) -> list[int]:
        """Returns the nets of a factor, behind their register if it has one."""
        nets = self.wide(cell, letter, width)
        if not number(cell, f"{letter}REG"):
            return nets
        behind = self.new_nets(width)
        self.registers(cell, nets, behind)
        return behind

    def new_nets(self, count: int) -> list[int]:
        """Nets that the module does not have."""
        return [self.net(f"new {len(self.nets)}") for _ in range(count)]

    def registers(self, cell: Cell, data: Sequence[int], outputs: Sequence[int]) -> None:
        """Makes the registers of a multiplier, with its enable and clock."""
        enable, clock = self.input(cell, "CE"), self.clock(cell, "CLK")
        self.numbers.registers += [[d, enable, ZERO, q, 0, clock] for d, q in zip(data, outputs, strict=True)]

    def two_ports(self, name: str, cell: Cell) -> None:
        byte = _BLOCKS[cell["type"]]
        ports: list[int] = []
        for n, letter in enumerate("AB"):
            data = [self.bytes_of(cell, f"D{kind}{letter}", 2, byte) for kind in "IO"]
            width = self.width(name, cell, n, byte)
            enables = self.inputs(cell, (f"{port}{letter}" for port in ("CE", "WRE", "OCE", "RESET")))
            ports += [*self.wide(cell, f"AD{letter}", 14), *data[0], *data[1], *enables, width]
            ports += [number(cell, f"READ_MODE{n}"), number(cell, f"WRITE_MODE{n}")]
        self.block(name, cell, ports, [self.input(cell, f"WRE{letter}") for letter in "AB"])

    def write_and_read(self, name: str, cell: Cell) -> None:
        """Port A writes in each cycle with its enable, B reads; a row of four bytes takes the data of both."""
        byte = _BLOCKS[cell["type"]]
        data, read = (self.bytes_of(cell, port, 4, byte) for port in ("DI", "DO"))
        widths = [self.width(name, cell, n, byte) for n in range(2)]
        wide_read = widths[1] == 4 * _BYTE
        if self.input(cell, "RESETA") != ZERO or (wide_read and self.input(cell, "RESETB") != ZERO):
            raise FpgaError(f"cell {name}: no model of a reset of {cell['type']}")
        registered, keeps = number(cell, "READ_MODE"), self.input(cell, "OCE")
        low, high = read[:18], read[18:]
        outputs = (low, high) if wide_read else ([ZERO] * 18, low)
        ports = [*self.wide(cell, "ADA", 14), *data[:18], *outputs[0], self.input(cell, "CEA"), ONE, keeps, ZERO]
        ports += [widths[0], registered, 0]
        enables = [self.input(cell, "CEB"), ZERO, keeps, self.input(cell, "RESETB")]
        ports += [*self.wide(cell, "ADB", 14), *data[18:], *outputs[1], *enables, widths[1], registered, 0]
        self.block(name, cell, ports, [self.input(cell, "CEA")])

    def block(self, name: str, cell: Cell, ports: Sequence[int], writes: Sequence[int]) -> None:
        self.tied(name, cell, ("BLKSELA", "BLKSELB"))
        clocks = {self.clock(cell, port) for port in ("CLKA", "CLKB") if self.input(cell, port) != ZERO}
        if len(clocks) != 1:
            raise FpgaError(f"cell {name}: no model of a block RAM with two clocks")
        if any(number(cell, f"BLK_SEL_{n}") for n in range(2)):
            raise FpgaError(f"cell {name}: no model of a block RAM that is selected")
        resets = any(self.input(cell, f"RESET{letter}") != ZERO for letter in "AB")
        if resets and text(cell, "RESET_MODE", "SYNC") != "SYNC":
            raise FpgaError(f"cell {name}: no model of a reset without a clock")
        self.numbers.blocks.append([*ports, int(any(net != ZERO for net in writes)), *words_of(cell), clocks.pop()])

    def width(self, name: str, cell: Cell, port: int, byte: int) -> int:
        """Bits of a port, 9 for each byte."""
        width = number(cell, f"BIT_WIDTH_{port}")
        if width not in _WIDTHS[byte]:
            raise FpgaError(f"cell {name}: no model of a port of {width} bits")
        return width // byte * _BYTE if width >= byte else width

    def bytes_of(self, cell: Cell, port: str, count: int, byte: int) -> list[int]:
        """Returns the nets of a port, 9 for each byte."""
        nets = self.wide(cell, port, count * byte)
        return [net for i in range(count) for net in (nets[byte * i : byte * (i + 1)] + [ZERO])[:_BYTE]]


def words_of(cell: Cell) -> list[int]:
    """Returns the 18-bit words a block RAM begins with."""
    found = list(_bytes(cell, _BLOCKS[cell["type"]]))
    return [low | high << _BYTE for low, high in zip(found[::2], found[1::2], strict=True)]


def _bytes(cell: Cell, bits: int) -> Iterator[int]:
    assert _ROWS * _ROW_BYTES == 2 * BLOCK_WORDS
    for row in range(_ROWS):
        value = number(cell, f"INIT_RAM_{row:02X}")
        yield from (value >> bits * i & (1 << bits) - 1 for i in range(_ROW_BYTES))


def is_gowin(module: Module) -> bool:
    """Returns whether a netlist is of this family, by its clock."""
    return any(cell["type"] == "rPLL" for cell in module["cells"].values())
