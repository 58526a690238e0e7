"""The cells of an ECP5 netlist as the numbers that `netlist.h` simulates.

What a cell does is written from Lattice's documents (ECP5 family data sheet; sysMEM and sysDSP usage guides), and from
what yosys says of its own cells where a document is silent: the carry cell, and the halves of a read of 36 bits.

Clocks are outputs of one PLL, or there is one clock alone. Their edges are counted in eighths of a cycle of the PLL's
oscillator, in which its outputs can be shifted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Cell, Module, number, text
from verification.netlists.cells import (
    ASYNC,
    BLOCK_WORDS,
    ENABLE_INVERTED,
    ONE,
    RESET_INVERTED,
    RESET_NEEDS_ENABLE,
    SELECT,
    SET,
    ZERO,
    CellReader,
    Maker,
    Numbers,
)

#: Words of a block RAM in one parameter, and the bits it has for each.
INIT_WORDS, INIT_BITS = 16, 20
WRITE_MODES = {"NORMAL": 0, "WRITETHROUGH": 1, "READBEFOREWRITE": 2}
_READ_WIDTHS = (1, 2, 4, 9, 18, 36)
#: Outputs of the PLL, the one that the others are counted from first; steps of a cycle of its oscillator.
PLL_OUTPUTS, _STEPS = ("CLKOP", "CLKOS", "CLKOS2", "CLKOS3"), 8


def numbers_of(module: Module) -> Numbers:
    """Returns the cells of a flat module.

    Raises:
        FpgaError: a kind of cell, or a setting of one, that is not simulated; or clocks that are not of one PLL.
    """
    return _Reader(module).numbers


def carry_tables(table: int, injects: bool) -> tuple[int, int]:
    """Tables of the sum and of the next carry of one bit of a chain, by its four inputs and the carry.

    S = P ^ carry, next carry = P ? carry : G. P is the table of all four inputs, G that of A and B; a bit that injects
    takes no carry into its sum, and G as 0.
    """
    total = out = 0
    for index in range(32):
        propagate, generate = table >> (index & 15) & 1, table >> (index & 3) & 1
        cin = index >> 4
        total |= (propagate ^ (cin and not injects)) << index
        out |= (cin if propagate else generate and not injects) << index
    return total, out


class _Reader(CellReader):
    def makers(self) -> Mapping[str, Maker]:
        return {
            "EHXPLLL": self.pll, "ODDRX1F": self.gives_clock, "TRELLIS_IO": self.pin, "LUT4": self.lut,
            "CCU2C": self.carry, "PFUMX": self.select, "L6MUX21": self.select, "TRELLIS_FF": self.register,
            "TRELLIS_DPR16X4": self.small_ram, "MULT18X18D": self.multiplier, "DP16KD": self.block,
            "$scopeinfo": self.nothing,
        }  # fmt: skip

    # Logic.

    def lut(self, name: str, cell: Cell) -> None:
        table = number(cell, "INIT")
        self.numbers.luts.append([*self.inputs(cell, "ABCD"), ZERO, self.input(cell, "Z"), table])
        self.numbers.lut_names.append(name)

    def carry(self, name: str, cell: Cell) -> None:
        """Two bits of a chain."""
        carry = self.input(cell, "CIN")
        for bit in range(2):
            total, out = carry_tables(number(cell, f"INIT{bit}"), text(cell, f"INJECT1_{bit}", "YES") == "YES")
            pins = [*self.inputs(cell, (f"{pin}{bit}" for pin in "ABCD")), carry]
            self.numbers.luts.append([*pins, self.input(cell, f"S{bit}"), total])
            if bit == 0:
                carry = self.net(f"carry of {name}")
                self.numbers.luts.append([*pins, carry, out])
            else:
                self.numbers.luts.append([*pins, self.input(cell, "COUT"), out])

    def select(self, name: str, cell: Cell) -> None:
        """Multiplexers of a slice: one more input for a LUT."""
        ports = ("BLUT", "ALUT", "C0") if cell["type"] == "PFUMX" else ("D0", "D1", "SD")
        self.numbers.luts.append([*self.inputs(cell, ports), ZERO, ZERO, self.input(cell, "Z"), SELECT])

    # What keeps a state.

    def register(self, name: str, cell: Cell) -> None:
        clock = self.clock(cell, "CLK", text(cell, "CLKMUX", "CLK") == "INV")
        flags = SET * (text(cell, "REGSET", "RESET") == "SET")
        mode = text(cell, "SRMODE", "LSR_OVER_CE")
        flags |= {"LSR_OVER_CE": 0, "CE_OVER_LSR": RESET_NEEDS_ENABLE, "ASYNC": ASYNC}[mode]
        flags |= RESET_INVERTED * (text(cell, "LSRMUX", "LSR") == "INV")
        enables = text(cell, "CEMUX", "1")
        flags |= ENABLE_INVERTED * (enables == "INV")
        enable = {"0": ZERO, "1": ONE}.get(enables, self.input(cell, "CE"))
        if text(cell, "LSRMODE", "LSR") != "LSR":
            raise FpgaError(f"cell {name}: no model of a register that loads at its reset")
        ports = [self.input(cell, "DI"), enable, self.input(cell, "LSR"), self.input(cell, "Q")]
        self.numbers.registers.append([*ports, flags, clock])

    def small_ram(self, name: str, cell: Cell) -> None:
        clock = self.clock(cell, "WCK", text(cell, "WCKMUX", "WCK") == "INV")
        write = text(cell, "WREMUX", "WRE")
        if write == "INV":
            raise FpgaError(f"cell {name}: no model of an inverted write enable")
        nets = [self.input(cell, port, i) for port in ("RAD", "WAD", "DI", "DO") for i in range(4)]
        enable = {"0": ZERO, "1": ONE}.get(write, self.input(cell, "WRE"))
        words = number(cell, "INITVAL")
        self.numbers.small_rams.append([*nets, enable, words & 0xFFFFFFFF, words >> 32, clock])

    def multiplier(self, name: str, cell: Cell) -> None:
        """A product, perhaps with the register behind it that `tilewright.fpga.flows.block_registers` gives it."""
        for letter in "ABC":
            if text(cell, f"REG_INPUT{letter}_CLK", "NONE") != "NONE":
                raise FpgaError(f"cell {name}: no model of a multiplier with registers before it")
        if text(cell, "REG_PIPELINE_CLK", "NONE") != "NONE":
            raise FpgaError(f"cell {name}: no model of a multiplier with a register inside")
        source, clock = text(cell, "REG_OUTPUT_CLK", "NONE"), 0
        registered = source != "NONE"
        if registered:
            clock = self.clock(cell, source, False)
            if (self.input(cell, "CE0"), self.input(cell, "RST0")) != (ONE, ZERO):
                raise FpgaError(f"cell {name}: no model of a multiplier whose register has an enable or a reset")
        nets = self.inputs(cell, (f"{letter}{i}" for letter in "AB" for i in range(18)))
        nets += self.inputs(cell, ("SIGNEDA", "SIGNEDB"))
        nets += self.inputs(cell, (f"P{i}" for i in range(36)))
        self.numbers.multipliers.append([*nets, int(registered), clock])

    def block(self, name: str, cell: Cell) -> None:
        ports: list[int] = []
        clocks: list[int] = []
        written = False
        for letter in "AB":
            width = number(cell, f"DATA_WIDTH_{letter}", 18)
            select = self.inputs(cell, (f"CS{letter}{i}" for i in range(3)))
            if width not in _READ_WIDTHS or any(select) or text(cell, f"CSDECODE_{letter}", "0b000") != "0b000":
                raise FpgaError(f"cell {name}: no model of a port of {width} bits, or one that is selected")
            clocks.append(self.clock(cell, f"CLK{letter}", text(cell, f"CLK{letter}MUX", f"CLK{letter}") == "INV"))
            enables = [self._enable(cell, name, f"{kind}{letter}") for kind in ("CE", "WE", "OCE", "RST")]
            ports += self.inputs(cell, (f"AD{letter}{i}" for i in range(14)))
            ports += self.inputs(cell, (f"DI{letter}{i}" for i in range(18)))
            ports += self.inputs(cell, (f"DO{letter}{i}" for i in range(18)))
            mode = WRITE_MODES[text(cell, f"WRITEMODE_{letter}", "NORMAL")]
            registered = int(text(cell, f"REGMODE_{letter}", "NOREG") == "OUTREG")
            ports += [*enables, width, registered, mode]
            written = written or enables[1] != ZERO
            if enables[3] != ZERO and text(cell, "RESETMODE", "SYNC") != "SYNC":
                raise FpgaError(f"cell {name}: no model of a reset without a clock")
        if clocks[0] != clocks[1]:
            raise FpgaError(f"cell {name}: no model of a block RAM with two clocks")
        self.numbers.blocks.append([*ports, int(written), *block_words(cell), clocks[0]])

    def _enable(self, cell: Cell, name: str, port: str) -> int:
        if text(cell, f"{port}MUX", port) != port:
            raise FpgaError(f"cell {name}: no model of {port}MUX")
        return self.input(cell, port)

    # What stands around.

    def pll(self, name: str, cell: Cell) -> None:
        """Makes the outputs of a PLL: the first one is clock 0."""
        self.numbers.locked = self.input(cell, "LOCK")
        for output in PLL_OUTPUTS:
            if text(cell, f"{output}_ENABLE", "DISABLED") == "ENABLED" and output in cell["connections"]:
                edges = edges_of(lambda parameter: number(cell, parameter, parameter.endswith("_DIV")), output)
                self.pll_outputs[self.input(cell, output)] = edges
        self.clock(cell, PLL_OUTPUTS[0], False)

    def gives_clock(self, name: str, cell: Cell) -> None:
        self.clock_out(name, cell, ("D0", "D1", "RST"), "SCLK", "Q")

    def pin(self, name: str, cell: Cell) -> None:
        """Makes a pin; one that is input and output is the input."""
        (pad,) = cell["connections"]["B"]
        direction = text(cell, "DIR", "INPUT")
        driven = (self.input(cell, "I"), self.input(cell, "T")) if direction != "INPUT" else None
        self.pad(name, pad, self.input(cell, "I" if direction == "OUTPUT" else "O"), driven)


def edges_of(parameter: Callable[[str], int], output: str) -> tuple[int, int]:
    """Period of an output of a PLL, and its first edge after one of its first output, by parameters of the PLL."""

    def phase(name: str) -> int:
        return _STEPS * parameter(f"{name}_CPHASE") + parameter(f"{name}_FPHASE")

    period = _STEPS * parameter(f"{output}_DIV")
    return period, (phase(output) - phase(PLL_OUTPUTS[0])) % period


def block_words(cell: Cell) -> list[int]:
    """Returns the 18-bit words a block RAM begins with."""
    words: list[int] = []
    for row in range(BLOCK_WORDS // INIT_WORDS):
        bits = number(cell, f"INITVAL_{row:02X}")
        words += [bits >> INIT_BITS * i & 0x3FFFF for i in range(INIT_WORDS)] if bits else [0] * INIT_WORDS
    return words
