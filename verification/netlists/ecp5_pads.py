"""A pin of a routed ECP5: its pad, and the registers beside it (IOLOGIC), as a configuration has them.

Wires of both have the place of the pad. Their settings stand in one of the tiles there, under the letter of the pad.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.fpga.errors import FpgaError
from verification.netlists.cells import ASYNC, ENABLE_INVERTED, ONE, RESET_INVERTED, SET, ZERO
from verification.netlists.ecp5_nets import Nets, output_of
from verification.netlists.trellis import Configuration, Wire

#: Columns and rows from a pad to the tiles that may have its settings: two behind each other at the upper and the lower
#: edge, three below each other at the sides. The next pad that has its letter is farther away.
_AROUND = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2))
#: Modes in which a register that drives a pad shows one value in a cycle, and two.
_ONE_EDGE, _TWO_EDGES = "IREG_OREG", "IDDRX1_ODDRX1"
#: What a pad shows where a register, or one of both edges, drives it; what decides whether it is driven at all.
_DATA, _TRISTATE = ("DATAMUX_OREG", "DATAMUX_ODDR"), "TRIMUX_TSREG"
PAD, REGISTERS = "PIO", "IOLOGIC"


@dataclass(frozen=True)
class Pad:
    """A pin of the FPGA, by column, row and letter."""

    configuration: Configuration
    column: int
    row: int
    letter: str

    @property
    def place(self) -> tuple[int, int]:
        """The column and row of the wires of the pad."""
        return self.column, self.row

    def setting(self, name: str, of: str = REGISTERS) -> str:
        """Returns a setting of the registers, or of the pad; empty = not set."""
        label = f"{of}{self.letter}.{name}"
        for columns, rows in _AROUND:
            settings = self.configuration.settings.get((self.column + columns, self.row + rows), {})
            if label in settings:
                return settings[label]
        return ""

    def expect(self, name: str, *values: str) -> str:
        """Returns a setting of the registers. Raises FpgaError if it has none of these values."""
        found = self.setting(name)
        if found not in values:
            label = f"{REGISTERS}{self.letter}.{name}"
            raise FpgaError(f"column {self.column}, row {self.row}: no model of {label} {found or 'not set'}")
        return found

    def pad_wire(self, port: str) -> Wire:
        """Returns a port of the pad, for example PADDO."""
        return (*self.place, f"{port}{self.letter}_{PAD}")

    def wire(self, port: str) -> Wire:
        """Returns a port of the registers, for example JCLK. Those at the upper and the lower edge have other names."""
        end = self.configuration.source(self.pad_wire("IOLTO"))
        if not isinstance(end, tuple) or not end[2].endswith(REGISTERS):
            raise FpgaError(f"column {self.column}, row {self.row}: no registers at pad {self.letter}")
        return (*self.place, f"{port}{self.letter}_{end[2].split('_')[1]}")

    @property
    def is_both(self) -> bool:
        """Whether it is read and driven."""
        return self.setting("BASE_TYPE", PAD).startswith("BIDIR")

    @property
    def has_data_register(self) -> bool:
        """Whether a register, or one of both edges, drives it."""
        return self._behind_register(_DATA)

    @property
    def has_tristate_register(self) -> bool:
        """Whether a register says that it is not driven."""
        return self._behind_register((_TRISTATE,))

    def _behind_register(self, names: Sequence[str]) -> bool:
        return any(self.setting(name, PAD).startswith("IOL") for name in names)


class Pads(Nets):
    """Makes the registers of pins."""

    def pin(self, name: str, pad: Pad) -> None:
        """An output if something drives its pad, an input if nothing does, or both."""
        read, source = pad.pad_wire("JPADDI"), self.configuration.source(pad.pad_wire("PADDO"))
        if pad.has_data_register:
            two_edges = pad.setting("MODE") == _TWO_EDGES
            driven = self.clock_out(pad) if two_edges else self.pad_output(pad, "OUTREG", "JTXDATA0")
        elif isinstance(source, tuple) and output_of(source) is None:
            self.numbers.pins[name] = self.end(read)
            return
        else:
            driven = self.net(source)
        if pad.has_tristate_register:
            off = self.pad_output(pad, "TSREG", "JTSDATA0")
        else:
            off = self.end(pad.pad_wire("PADDT"))
        self.numbers.outputs[name] = driven, off
        self.numbers.pins[name] = self.end(read) if pad.is_both else driven

    def clock_out(self, pad: Pad) -> int:
        """Returns a register of both edges that gives a clock to a pin: high in the first half of each cycle."""
        pad.expect("CLKOMUX", "CLK")
        pad.expect("DELAY.OUTDEL", "DISABLED")
        if [self.end(pad.wire(port)) for port in ("JTXDATA0", "JTXDATA1", "JLSR")] != [ONE, ZERO, ZERO]:
            raise FpgaError(f"column {pad.column}, row {pad.row}: no model of a register of both edges but as a clock")
        return self.clock_net(pad.wire("JCLK"))

    def pad_output(self, pad: Pad, register: str, data: str) -> int:
        """Returns the net of a register that drives a pad, or its tristate."""
        pad.expect("MODE", _ONE_EDGE, _TWO_EDGES)
        pad.expect(f"{register}.OUTREGMODE", "FF")
        pad.expect("DELAY.OUTDEL", "DISABLED")
        pad.expect("IOLTOMUX", "", "NONE", "TS")
        net = self.new()
        self.numbers.registers.append(self.pad_numbers(pad, self.end(pad.wire(data)), net, f"{register}.REGSET", "O"))
        return net

    def pad_register(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        """Makes the register that takes what comes from a pad."""
        pad = Pad(self.configuration, *wire[:2], match[1])
        pad.expect("MODE", _ONE_EDGE)
        pad.expect("FF.INREGMODE", "FF")
        self.numbers.registers.append(self.pad_numbers(pad, self.end(pad.wire("DI")), net, "FF.REGSET", "I"))

    def pad_numbers(self, pad: Pad, data: int, net: int, reset_value: str, side: str) -> list[int]:
        """Returns enable, reset and clock of a register at a pad; those of both sides have the same, or none of
        them."""
        flags = SET * (pad.expect(reset_value, "SET", "RESET") == "SET")
        enable, reset = ONE, ZERO
        if pad.expect(f"CE{side}MUX", "CEMUX", "1") == "CEMUX":
            enable = self.end(pad.wire("JCE"))
            flags |= ENABLE_INVERTED * (pad.expect("CEMUX", "CE", "INV") == "INV")
        if pad.expect(f"LSR{side}MUX", "LSRMUX", "0") == "LSRMUX":
            reset = self.end(pad.wire("JLSR"))
            flags |= RESET_INVERTED * (pad.expect("LSRMUX", "LSR", "INV") == "INV")
            flags |= ASYNC * (pad.expect("SRMODE", "ASYNC", "LSR_OVER_CE") == "ASYNC")
        pad.expect(f"CLK{side}MUX", "CLK")
        if self.has_global_reset:
            pad.expect("GSR", "DISABLED")
        return [data, enable, reset, net, flags, self.clock(pad.wire("JCLK"))]
