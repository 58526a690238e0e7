"""The cells of a routed ECP5 as the numbers that `netlist.h` simulates: read from the configuration alone.

What is not in the configuration is not simulated: connections are followed back, switch by switch, from the pins. What
slices, block RAMs and multipliers do is what `ecp5_cells` says; names of their wires are those of `trellis`, those of
pins are in `ecp5_pads`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tilewright.fpga.errors import FpgaError
from verification.netlists import cells, ecp5_cells
from verification.netlists.cells import ONE, SELECT, ZERO, Numbers
from verification.netlists.ecp5_nets import OUTPUTS, output_of, slice_of
from verification.netlists.ecp5_pads import Pad, Pads
from verification.netlists.trellis import Configuration, Wire

_LOCATED = re.compile(r'LOCATE COMP "([^"]+)" SITE "([^"]+)"')
#: Pins of the third slice that take the data of the four LUTs of a small RAM. Its other four, of the same names as the
#: inputs of those LUTs, take the address of a write. No document says so: it is what nextpnr does.
RAM_DATA = ("C5", "A5", "D5", "B5")
#: Which number of a port of `cells.h` its write enable is: behind address, data, outputs and the clock's enable.
_WRITE_ENABLE = 14 + 18 + 18 + 1
#: Which block of a row begins in a tile, by the type of the tile.
_BLOCKS = {"MIB_EBR0": 0, "MIB_EBR2": 1, "MIB_EBR4": 2, "MIB_EBR6": 3}
_BLOCKS |= dict.fromkeys(("EBR_CMUX_UR", "EBR_CMUX_LR", "EBR_CMUX_LR_25K"), 0)
_MULTIPLIERS = {"MIB_DSP0": 0, "MIB_DSP1": 1, "MIB_DSP4": 4, "MIB_DSP5": 5}


def pins_of(constraints: str) -> dict[str, str]:
    """Pins of the package that a constraints file (.lpf) gives to ports."""
    return dict(_LOCATED.findall(constraints))


def numbers_of(configuration: Configuration, pins: Mapping[str, str]) -> Numbers:
    """Returns the cells that pins depend on.

    Args:
        pins: of the package, by name of port.

    Raises:
        FpgaError: a wire without a driver, a setting that is not simulated, or clocks that are not of one PLL.
    """
    return _Reader(configuration, pins).numbers


def carry_in(cell: int) -> str:
    """Returns the wire of the carry into one of the eight LUTs of a tile."""
    letter = "ABCD"[cell // 2]
    return f"FCI{letter}1_SLICE" if cell % 2 else "FCI_SLICE" if letter == "A" else f"FCI{letter}_SLICE"


class _Reader(Pads):
    def __init__(self, configuration: Configuration, pins: Mapping[str, str]) -> None:
        super().__init__(configuration)
        self._made: set[tuple[int, int, str]] = set()
        makers: dict[str, Callable[[Wire, int, re.Match[str]], None]] = {
            "table": self.table, "register": self.register, "select": self.select, "carry": self.carry,
            "block": self.block, "multiplier": self.multiplier, "pad": self.nothing,
            "pad_register": self.pad_register, "pll": self.pll,
        }  # fmt: skip
        for name, site in pins.items():
            self.pin(name, Pad(configuration, *configuration.pad(site)))
        while self.found:
            wire, net = self.found.popleft()
            if (found := output_of(wire)) is None:
                raise FpgaError(f"column {wire[0]}, row {wire[1]}: {wire[2]} is needed, and nothing drives it")
            makers[found[0]](wire, net, found[1])
        self.numbers.luts += self.parts
        self.numbers.nets = self.count
        if not self.numbers.clocks:
            raise FpgaError("the netlist has no clock")

    # Logic.

    def lut_inputs(self, place: tuple[int, int], cell: int) -> list[int]:
        name = slice_of(cell)
        tied = self.configuration.settings.get(place, {})
        return [
            ONE if tied.get(f"{name}.{pin}{cell % 2}MUX") == "1" else self.input(place, f"{pin}{cell}_SLICE")
            for pin in "ABCD"
        ]

    def table(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        place, cell = wire[:2], int(match[1])
        name = f"{slice_of(cell)}.K{cell % 2}"
        table = int(self.setting(place, f"{name}.INIT"), 2)
        mode = self.setting(place, f"{slice_of(cell)}.MODE")
        if mode == "LOGIC":
            self.numbers.luts.append([*self.lut_inputs(place, cell), ZERO, net, table])
            self.numbers.lut_names.append(f"R{place[1]}C{place[0]}.{name}")
        elif mode == "CCU2":
            self.parts.append([*self.carry_inputs(place, cell), net, self.carry_tables(place, cell, table)[0]])
        elif mode == "DPRAM":
            self.small_ram(place, cell, net, table)
        else:
            raise FpgaError(f"column {place[0]}, row {place[1]}: {name} in mode {mode} has no output")

    def carry_tables(self, place: tuple[int, int], cell: int, table: int) -> tuple[int, int]:
        injects = self.setting(place, f"{slice_of(cell)}.CCU2.INJECT1_{cell % 2}") == "YES"
        return ecp5_cells.carry_tables(table, injects)

    def carry_inputs(self, place: tuple[int, int], cell: int) -> list[int]:
        """Returns the four of the LUT and the carry, which is 0 where a chain begins: there it must not matter."""
        name = carry_in(cell)
        source = (*place, name) if cell % 2 else self.configuration.source((*place, name))
        chained = False
        if isinstance(source, tuple) and (match := OUTPUTS["carry"].fullmatch(source[2])):
            settings = self.configuration.settings.get(source[:2], {})
            chained = settings.get(f"SLICE{match[1] or 'D'}.MODE") == "CCU2"
        return [*self.lut_inputs(place, cell), self.net(source) if chained else ZERO]

    def carry(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        place, letter = wire[:2], match[1] or "D"
        cell = 2 * "ABCD".index(letter) + (wire[2].startswith("FCO"))
        table = int(self.setting(place, f"SLICE{letter}.K{cell % 2}.INIT"), 2)
        self.parts.append([*self.carry_inputs(place, cell), net, self.carry_tables(place, cell, table)[1]])

    def select(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        """Multiplexers of a slice: one more input for a LUT. The second one takes outputs of others."""
        place, cell = wire[:2], 2 * "ABCD".index(match[2])
        if match[1] == "F5":
            first, second = (self.net((*place, f"F{cell + i}_SLICE")) for i in range(2))
        else:
            first, second = (self.input(place, f"FX{x}{match[2]}_SLICE") for x in "AB")
            cell += 1
        name = f"{slice_of(cell)}.M{cell % 2}MUX"
        tied = self.configuration.settings.get(place, {}).get(name) == "1"
        chosen = ONE if tied else self.input(place, f"M{cell}_SLICE")
        self.parts.append([first, second, chosen, ZERO, ZERO, net, SELECT])

    # What keeps a state.

    def register(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        place, cell = wire[:2], int(match[1])
        name, part = slice_of(cell), cell // 2
        self.expect(place, f"{name}.REG{cell % 2}.LSRMODE", "LSR")
        if self.has_global_reset:
            self.expect(place, f"{name}.GSR", "DISABLED")
        flags = cells.SET * (self.setting(place, f"{name}.REG{cell % 2}.REGSET") == "SET")
        from_table = self.setting(place, f"{name}.REG{cell % 2}.SD") == "1"
        data = self.input(place, f"{'DI' if from_table else 'M'}{cell}_SLICE")
        enables = self.setting(place, f"{name}.CEMUX")
        flags |= cells.ENABLE_INVERTED * (enables == "INV")
        enable = {"0": ZERO, "1": ONE}.get(enables)
        if enable is None:
            enable = self.input(place, f"CE{part}_SLICE")
        reset = ZERO
        if line := self.configuration.arcs.get((*place, f"MUXLSR{part}")):
            reset = self.end(line)
            flags |= cells.RESET_INVERTED * (self.setting(place, f"{line[2]}.LSRMUX") == "INV")
            self.expect(place, f"{line[2]}.SRMODE", "LSR_OVER_CE", "ASYNC")
            flags |= cells.ASYNC * (self.setting(place, f"{line[2]}.SRMODE") == "ASYNC")
        if clock := self.configuration.arcs.get((*place, f"MUXCLK{part}")):
            self.expect(place, f"{clock[2]}.CLKMUX", "CLK")
        self.numbers.registers.append([data, enable, reset, net, flags, self.clock((*place, f"CLK{part}_SLICE"))])

    def small_ram(self, place: tuple[int, int], cell: int, net: int, table: int) -> None:
        """Makes one bit of 16 words; address and data of a write come through the third slice, which is not a LUT
        then."""
        self.expect(place, "SLICEC.MODE", "RAMW")
        self.expect(place, "CLK1.CLKMUX", "CLK")
        number = self.clock((*place, "CLK1"))
        if self.configuration.settings[place].get("LSR1.LSRMUX", "LSR") != "LSR":  # a reset of registers too
            raise FpgaError(f"column {place[0]}, row {place[1]}: no model of an enable that is inverted with a reset")
        kind = self.setting(place, "SLICEA.WREMUX")
        enable = {"0": ZERO, "1": ONE}.get(kind)
        if enable is None:
            enable = self.input(place, "LSR1")
            enable = self.inverse(enable) if kind == "INV" else enable
        written = [self.input(place, f"{pin}4_SLICE") for pin in "ABCD"]
        data = [self.input(place, f"{RAM_DATA[cell]}_SLICE"), ZERO, ZERO, ZERO]
        words = sum((table >> i & 1) << 4 * i for i in range(16))
        halves = words & 0xFFFFFFFF, words >> 32
        read = self.lut_inputs(place, cell)
        self.numbers.small_rams.append([*read, *written, *data, net, ZERO, ZERO, ZERO, enable, *halves, number])

    def once(self, place: tuple[int, int], what: str) -> bool:
        """Cells with several outputs are made at the first."""
        known = (*place, what) in self._made
        self._made.add((*place, what))
        return not known

    def multiplier(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        place = wire[:2]
        if not self.once(place, "MULT18"):
            return
        name = multiplier_at(self.configuration, place)
        self.expect(place, f"{name}.MODE", "MULT18X18D")
        for part in ("INPUTA", "INPUTB", "INPUTC", "PIPELINE"):
            self.expect(place, f"{name}.REG_{part}_CLK", "NONE")
        clock, number = self.setting(place, f"{name}.REG_OUTPUT_CLK"), 0
        if clock != "NONE":
            self.expect(place, f"{name}.{clock}MUX", clock)
            number = self.clock((*place, f"J{clock}_MULT18"))
            held = [self.inverted(place, f"{name}.{pin}MUX", pin, f"J{pin}_MULT18") for pin in ("CE0", "RST0")]
            if held != [ONE, ZERO]:
                raise FpgaError(f"{name} at {place}: no model of a register with an enable or a reset")
        pins = [f"{letter}{i}" for letter in "AB" for i in range(18)] + ["SIGNEDA", "SIGNEDB"]
        inputs = [self.input(place, f"J{pin}_MULT18") for pin in pins]
        outputs = [self.net((*place, f"JP{i}_MULT18")) for i in range(36)]
        self.numbers.multipliers.append([*inputs, *outputs, int(clock != "NONE"), number])

    def inverted(self, place: tuple[int, int], setting: str, plain: str, wire: str) -> int:
        """Returns an input behind a switch that inverts it."""
        net = self.input(place, wire)
        self.expect(place, setting, plain, "INV")
        return self.inverse(net) if self.setting(place, setting) == "INV" else net

    def block(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        place = wire[:2]
        if not self.once(place, "EBR"):
            return
        name = block_at(self.configuration, place)
        mode = self.setting(place, f"{name}.MODE")
        ports = [number for letter in "AB" for number in self.port(place, name, letter, mode == "PDPW16KD")]
        written = any(ports[at] != ZERO for at in (_WRITE_ENABLE, _WRITE_ENABLE + len(ports) // 2))
        clocks = [self.clock((*place, f"JCLK{letter}_EBR")) for letter in "AB"]
        if clocks[0] != clocks[1]:
            raise FpgaError(f"{name} at {place}: no model of a block RAM with two clocks")
        words = self.configuration.content_of(place, name)
        self.numbers.blocks.append([*ports, int(written), *words, clocks[0]])

    def port(self, place: tuple[int, int], name: str, letter: str, wide: bool) -> list[int]:
        """Returns a port of a block RAM; of a wide one, A writes 36 bits whenever its clock is enabled, and B reads."""
        for i, bit in enumerate(reversed(self.setting(place, f"{name}.CSDECODE_{letter}"))):
            if self.input(place, f"JCS{letter}{i}_EBR") != (ZERO, ONE)[int(bit)]:
                raise FpgaError(f"{name} at {place}: no model of a port that is selected")
        self.expect(place, f"{name}.CLK{letter}MUX", f"CLK{letter}")
        enables = [
            (ZERO, ONE)[letter == "A"]
            if wide and kind == "WE"
            else self.inverted(place, f"{name}.{kind}{letter}MUX", f"{kind}{letter}", f"J{kind}{letter}_EBR")
            for kind in ("CE", "WE", "OCE", "RST")
        ]
        if enables[-1] != ZERO:
            self.expect(place, f"{name}.RESETMODE", "SYNC")
        if wide:
            width = 36 if letter == "A" else int(self.setting(place, f"{name}.PDPW16KD.DATA_WIDTH_R"))
            mode = "NORMAL"
        else:
            width = int(self.setting(place, f"{name}.DP16KD.DATA_WIDTH_{letter}"))
            mode = self.setting(place, f"{name}.DP16KD.WRITEMODE_{letter}")
        unused = 4 if wide and letter == "A" else -1  # below it are four enables of bytes, above it the row
        address = [ZERO if i == unused else self.input(place, f"JAD{letter}{i}_EBR") for i in range(14)]
        data = [self.input(place, f"JDI{letter}{i}_EBR") for i in range(18)]
        outputs = [self.net((*place, f"JDO{letter}{i}_EBR")) for i in range(18)]
        registered = int(self.setting(place, f"{name}.REGMODE_{letter}") == "OUTREG")
        return [*address, *data, *outputs, *enables, width, registered, ecp5_cells.WRITE_MODES[mode]]

    # What stands around.

    def pll(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        self.numbers.locked = net

    def nothing(self, wire: Wire, net: int, match: re.Match[str]) -> None:
        """A pin that is an input."""


def block_at(configuration: Configuration, place: tuple[int, int]) -> str:
    """Returns the name of the block RAM that begins at a place."""
    return f"EBR{_number_of(configuration, place, _BLOCKS)}"


def multiplier_at(configuration: Configuration, place: tuple[int, int]) -> str:
    """Returns the name of the multiplier that begins at a place."""
    return f"MULT18_{_number_of(configuration, place, _MULTIPLIERS)}"


def _number_of(configuration: Configuration, place: tuple[int, int], numbers: Mapping[str, int]) -> int:
    found = [numbers[kind] for kind in configuration.types(place) if kind in numbers]
    if not found:
        raise FpgaError(f"column {place[0]}, row {place[1]}: no such block begins in {configuration.types(place)}")
    return found[0]
