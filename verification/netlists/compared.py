"""A configuration beside the netlist that nextpnr placed and routed: the same connections and the same settings.

The netlist is the one that `nextpnr --write` gives; `changed` compares it with the one that nextpnr was given.
Connections are followed in the configuration from each input of each cell to where they come from, so that a switch
that is wrong or missing is found, whichever way the router took.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tilewright.fpga.flows.netlist import Bit, Cell, Module, number, text
from verification.netlists.ecp5_cells import PLL_OUTPUTS, block_words
from verification.netlists.ecp5_nets import slice_of
from verification.netlists.ecp5_pads import PAD, REGISTERS, Pad
from verification.netlists.ecp5_routed import block_at, carry_in, multiplier_at
from verification.netlists.trellis import Configuration, Source, Wire, kind_of

_BEL = re.compile(r"X(\d+)/Y(\d+)/(.+)")
_SLICE = re.compile(r"SLICE([A-D])\.(?:K|FF)(\d)")
_INPUTS = "ABCD"
#: Settings of a register that nextpnr writes as they are in its netlist, and their values where that has none.
_REGISTER = {"REGSET": "RESET", "LSRMODE": "LSR", "SD": "0"}
_SHARED = {"LSRMUX": ("MUXLSR", "LSR"), "SRMODE": ("MUXLSR", "LSR_OVER_CE"), "CLKMUX": ("MUXCLK", "CLK")}
#: The same of block RAMs, but for widths, and of multipliers.
_BLOCK = {
    **{f"{name}_{x}": value for name, value in (("REGMODE", "NOREG"), ("WRITEMODE", "NORMAL")) for x in "AB"},
    **{f"CLK{x}MUX": f"CLK{x}" for x in "AB"},
    "RESETMODE": "SYNC", "ASYNC_RESET_RELEASE": "SYNC", "GSR": "DISABLED",
}  # fmt: skip
#: Inputs of a block RAM that are numbered, and those that one of 36 bits does without.
_BLOCK_PORTS = {"AD": 14, "DI": 18, "CS": 3}
_NOT_WIDE = ("WEA", "WEB", "ADA4")
_MULTIPLIER = {
    **{f"REG_{part}_CLK": "NONE" for part in ("INPUTA", "INPUTB", "INPUTC", "PIPELINE", "OUTPUT")},
    **{f"REG_{part}_{pin}": f"{pin}0" for part in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT") for pin in ("CE", "RST")},
    "GSR": "ENABLED", "RESETMODE": "SYNC", "SOURCEB_MODE": "B_SHIFT",
}  # fmt: skip
#: Dividers of a PLL: one less in the configuration.
_DIVIDERS = {"CLKI_DIV": 1, "CLKFB_DIV": 1, "CLKOP_DIV": 8, "CLKOS_DIV": 8, "CLKOS2_DIV": 8, "CLKOS3_DIV": 8}
_PLL = {"FEEDBK_PATH": "CLKOP", "PLLRST_ENA": "DISABLED", "STDBY_ENABLE": "DISABLED"}
#: Bits of both parts of a phase.
_PHASES = {"CPHASE": 7, "FPHASE": 3}
#: What a pin is connected to where nothing is written.
_NO_REGISTERS = {**{f"DATAMUX_{kind}": "PADDO" for kind in ("OREG", "ODDR", "MDDR")}, "TRIMUX_TSREG": "PADDT"}
#: Ports of a pin, and the beginnings of the names of their wires.
_PAD = {"I": "PADDO", "T": "PADDT", "O": "JPADDI", "IOLTO": "IOLTO"}
#: Ports of the registers at a pin that have a wire to the other cells, and the beginnings of its name.
_AT_PADS = {port: f"J{port}" for port in ("CLK", "CE", "LSR", "TXDATA0", "TXDATA1", "TSDATA0", "INFF")}
_AT_PADS |= {port: port for port in ("DI", "PADDI", "IOLTO")}
#: Cells that nextpnr neither renames nor changes.
_KEPT = ("TRELLIS_FF", "DP16KD", "MULT18X18D")


def differences(module: Module, configuration: Configuration) -> Iterator[str]:
    """Differences between a netlist and its configuration, a line each: first the cell.

    Args:
        module: of a netlist after routing, every cell with its place.
    """
    return _Comparison(module, configuration).run()


def changed(before: Module, after: Module) -> Iterator[str]:
    """Settings that cells had when nextpnr read them and have no more when it has routed them, a line each.

    Registers, block RAMs with their contents, multipliers, and LUTs without a constant input are compared; carries,
    small RAMs, multiplexers and registers at pins are other cells after nextpnr has packed them.
    """
    for name, cell in before["cells"].items():
        table = cell["type"] == "LUT4"
        if not table and cell["type"] not in _KEPT:
            continue
        if table and any(cell["connections"][port][0] in ("0", "1", "x") for port in _INPUTS):
            continue
        if int(cell["attributes"].get("syn_useioff", "0"), 2) and name not in after["cells"]:
            continue
        settings = after["cells"].get(name, {}).get("parameters", {})
        for setting, wanted in cell["parameters"].items():
            found = settings.get("INITVAL" if table else setting)
            if str(found).strip()[-len(wanted.strip()) :] != wanted.strip():
                yield f"{name}: {setting} is {found}, not {wanted}"


def lost(written: Configuration, found: Configuration) -> Iterator[str]:
    """Yields settings lost between a configuration and the one read from its bitstream, and switches that only the
    latter has, a line each. Where a tile has only some of the bits of a setting, those are compared; levels of pins are
    not. Bits of two settings that are written may be those of another value of one of them."""
    for wire in sorted(found.arcs.keys() - written.arcs.keys()):
        if not found.rests(wire, found.arcs[wire]) and not _is_sum(written, wire):
            yield f"{wire}: connected to {found.arcs[wire]}, which is not written"
    for wire, driver in written.arcs.items():
        connected = found.arcs.get(wire, driver if found.rests(wire, driver) else None)
        if connected != driver and not _is_sum(written, wire):
            yield f"{wire}: connected to {connected}, not {driver}"
    for tile, settings in written.tiles.items():
        kind = kind_of(tile.split(":")[1])
        for name, value in settings.items():
            other = found.tiles.get(tile, {}).get(name, kind.defaults.get(name, ""))
            if name in kind.words and any(
                here and x != y for here, x, y in zip(reversed(kind.words[name]), value, other, strict=True)
            ):
                yield f"{tile}: {name} is {other}, not {value}"
            options = {} if name.endswith(".BASE_TYPE") else kind.options.get(name, {})
            if value not in options or options[value] == options.get(other):
                continue
            shared = set[str]().union(*(kind.bits(*setting) for setting in settings.items() if setting[0] != name))
            if not options[value] <= kind.bits(name, other) <= options[value] | shared:
                yield f"{tile}: {name} is {other}, not {value}"
    for block, content in written.contents.items():
        if found.contents.get(block) != content:
            yield f"contents of block RAM {block} are others"


def _is_sum(configuration: Configuration, wire: Wire) -> bool:
    """Returns whether a wire is a sum: there, what chooses a multiplexer in other slices says that nothing is
    injected."""
    output = re.fullmatch(r"F(\d)", wire[2])
    if output is None:
        return False
    return configuration.settings.get(wire[:2], {}).get(f"{slice_of(int(output[1]))}.MODE") == "CCU2"


class _Comparison:
    def __init__(self, module: Module, configuration: Configuration) -> None:
        self.cells: dict[str, Cell] = module["cells"]
        self.configuration = configuration
        self.drivers: dict[Bit, Wire] = {}
        self.kinds: dict[str, Callable[[Cell, tuple[int, int], str], Iterator[str]]] = {
            "TRELLIS_COMB": self.table, "TRELLIS_FF": self.register, "TRELLIS_RAMW": self.nothing,
            "DP16KD": self.block, "MULT18X18D": self.multiplier, "EHXPLLL": self.pll,
            "TRELLIS_IO": partial(self.pad, of=PAD), "IOLOGIC": self.pad, "SIOLOGIC": self.pad, "DCCA": self.nothing,
        }  # fmt: skip

    def run(self) -> Iterator[str]:
        for cell in self.cells.values():
            place, bel = _place(cell)
            for port, bits in cell["connections"].items():
                if bits and cell["port_directions"][port] == "output" and (wire := _wire(cell, place, bel, port)):
                    self.drivers[bits[0]] = wire
        for name, cell in self.cells.items():
            place, bel = _place(cell)
            if cell["type"] not in self.kinds:
                yield f"{name}: {cell['type']} is not compared"
                continue
            yield from (f"{name}: {found}" for found in self.connections(cell, place, bel))
            yield from (f"{name}: {found}" for found in self.kinds[cell["type"]](cell, place, bel))

    # Connections.

    def connections(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        """Returns the connections of all inputs that have one place; those of a LUT may be exchanged."""
        exchanged = _INPUTS if cell["type"] == "TRELLIS_COMB" and _mode(cell) != "DPRAM" else ""
        for port, bits in cell["connections"].items():
            if not bits or cell["port_directions"][port] == "output" or port in exchanged:
                continue
            if (wire := _wire(cell, place, bel, port)) is None:
                continue
            wanted = self.source(self.drivers[bits[0]]) if bits[0] in self.drivers else None
            if (found := self.source(wire)) != wanted:
                yield f"{port} comes from {found}, not {wanted}"

    def ties(self, cell: Cell, place: tuple[int, int], bel: str, ports: Iterable[str]) -> Iterator[str]:
        """Inputs of blocks without a net are constants: by a tie, or by one that is 1 and perhaps inverted."""
        for port in ports:
            if cell["connections"].get(port):
                continue
            wanted = text(cell, f"{port}MUX", "0")[-1:]
            if inverted := re.fullmatch(r"(CLK|WE|RST|CE|OCE|CS)[AB]\d?", port):
                wanted = "1"
                usual = port if inverted[1] in ("CE", "OCE") else "INV"
                if inverted[1] != "CS":
                    yield from self.same(place, f"{bel}.{port}MUX", text(cell, f"{port}MUX", usual))
            wire = _wire(cell, place, bel, port)
            assert wire is not None
            if (found := self.source(wire)) != wanted:
                yield f"{port} is {found}, not {wanted}"

    def source(self, wire: Wire) -> Source:
        return self.configuration.source(wire)

    def settings(self, place: tuple[int, int]) -> dict[str, str]:
        return self.configuration.settings.get(place, {})

    def same(self, place: tuple[int, int], name: str, wanted: str) -> Iterator[str]:
        found = self.settings(place).get(name)
        if found != wanted:
            yield f"{name} is {found}, not {wanted}"

    # Kinds of cells.

    def nothing(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        yield from ()

    def table(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        """Yields a table, whatever the order of its inputs; the carry of a chain is another function of the same
        table."""
        mode, index = _mode(cell), _index(bel)
        if mode == "RAMW_BLOCK":
            return
        name = f"{slice_of(index)}.K{index % 2}"
        yield from self.same(place, f"{slice_of(index)}.MODE", mode)
        written = self.settings(place).get(f"{name}.INIT")
        if written is None:
            yield f"{name}.INIT is not written"
            return
        wanted: list[Source] = []
        for port in _INPUTS:
            bits = cell["connections"].get(port)
            wanted.append(self.source(self.drivers[bits[0]]) if bits and bits[0] in self.drivers else "1")
        found = [
            "1"
            if self.settings(place).get(f"{slice_of(index)}.{pin}{index % 2}MUX") == "1"
            else self.source((*place, f"{pin}{index}_SLICE"))
            for pin in _INPUTS
        ]
        tables = number(cell, "INITVAL"), int(written, 2)
        if not _equal(tables, (wanted, found)):
            yield f"{name}.INIT is {tables[1]:016b} of {found}, not {tables[0]:016b} of {wanted}"
        if mode == "CCU2":
            yield from self.same(
                place, f"{slice_of(index)}.CCU2.INJECT1_{index % 2}", text(cell, "CCU2_INJECT1", "YES")
            )
            if not _equal((tables[0] & 15, tables[1] & 15), (wanted[:2], found[:2])):
                yield f"{name}: the carry is another one"

    def register(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        index = _index(bel)
        name, part = slice_of(index), index // 2
        for setting, default in _REGISTER.items():
            yield from self.same(place, f"{name}.REG{index % 2}.{setting}", text(cell, setting, default))
        yield from self.same(place, f"{name}.GSR", text(cell, "GSR", "ENABLED"))
        yield from self.same(place, f"{name}.CEMUX", text(cell, "CEMUX", "1"))
        for setting, (switch, default) in _SHARED.items():
            if line := self.configuration.arcs.get((*place, f"{switch}{part}")):
                yield from self.same(place, f"{line[2]}.{setting}", text(cell, setting, default))
        if not cell["connections"].get("LSR") and self.configuration.arcs.get((*place, f"MUXLSR{part}")):
            yield "has a reset"

    def block(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        name = block_at(self.configuration, place)
        wide = number(cell, "DATA_WIDTH_A", 18) == 36
        yield from self.same(place, f"{name}.MODE", "PDPW16KD" if wide else "DP16KD")
        widths = {"PDPW16KD.DATA_WIDTH_R": "B"} if wide else {f"DP16KD.DATA_WIDTH_{x}": x for x in "AB"}
        for setting, letter in widths.items():
            yield from self.same(place, f"{name}.{setting}", str(number(cell, f"DATA_WIDTH_{letter}", 18)))
        for setting, default in _BLOCK.items():
            if setting.startswith("WRITEMODE"):
                if not wide:
                    yield from self.same(place, f"{name}.DP16KD.{setting}", text(cell, setting, default))
            else:
                yield from self.same(place, f"{name}.{setting}", text(cell, setting, default))
        ports = [f"{kind}{x}{i}" for kind, count in _BLOCK_PORTS.items() for x in "AB" for i in range(count)]
        ports += [f"{kind}{x}" for kind in ("CLK", "CE", "OCE", "WE", "RST") for x in "AB"]
        yield from self.ties(cell, place, name, (port for port in ports if not (wide and port in _NOT_WIDE)))
        contents = self.configuration.content_of(place, name)
        if contents != block_words(cell):
            yield "has other contents"

    def multiplier(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        name = multiplier_at(self.configuration, place)
        yield from self.same(place, f"{name}.MODE", "MULT18X18D")
        yield from self.ties(cell, place, name, (f"{letter}{i}" for letter in "AB" for i in range(18)))
        for setting, default in _MULTIPLIER.items():
            if f"{name}.{setting}" in self.settings(place) or setting.endswith("_CLK"):
                yield from self.same(place, f"{name}.{setting}", text(cell, setting, default))

    def pad(self, cell: Cell, place: tuple[int, int], bel: str, of: str = REGISTERS) -> Iterator[str]:
        """Settings of a pin, or of the registers at it. The direction of a pin begins the name of its standard."""
        pad = Pad(self.configuration, *place, bel[-1])
        for name, value in cell["parameters"].items():
            wanted = value.strip()
            found = pad.setting("BASE_TYPE", of).partition("_")[0] if name == "DIR" else pad.setting(name, of)
            found = found or _NO_REGISTERS.get(name, "")
            if found != wanted:
                yield f"{of}{pad.letter}.{name} is {found or 'not written'}, not {wanted}"

    def pll(self, cell: Cell, place: tuple[int, int], bel: str) -> Iterator[str]:
        place = self.configuration.place_with("CLKFB_DIV", near=place)
        for setting, usual in _DIVIDERS.items():
            yield from self.same(place, setting, f"{number(cell, setting, usual) - 1:07b}")
        for setting, default in _PLL.items():
            yield from self.same(place, setting, text(cell, setting, default))
        for output in PLL_OUTPUTS:
            if text(cell, f"{output}_ENABLE", "DISABLED") == "ENABLED":
                yield from self.same(place, f"{output}_ENABLE", "ENABLED")
                for phase, bits in _PHASES.items():
                    yield from self.same(place, f"{output}_{phase}", f"{number(cell, f'{output}_{phase}'):0{bits}b}")


def _place(cell: Cell) -> tuple[tuple[int, int], str]:
    found = _BEL.fullmatch(cell["attributes"]["NEXTPNR_BEL"])
    assert found is not None
    return (int(found[1]), int(found[2])), found[3]


def _index(bel: str) -> int:
    """Returns the index of a BEL among the eight LUTs or registers of its tile."""
    found = _SLICE.fullmatch(bel)
    assert found is not None
    return 2 * _INPUTS.index(found[1]) + int(found[2])


def _mode(cell: Cell) -> str:
    return text(cell, "MODE", "LOGIC")


def _wire(cell: Cell, place: tuple[int, int], bel: str, port: str) -> Wire | None:
    """Returns the wire of a port, None if it has none that can be followed."""
    kind, name = cell["type"], ""
    if kind in ("TRELLIS_COMB", "TRELLIS_FF"):
        index = _index(bel)
        letter, part = _INPUTS[index // 2], index // 2
        if port in ("A", "B", "C", "D", "F", "M", "Q", "DI"):
            name = f"{port}{index}_SLICE"
        elif port == "OFX":
            name = f"F{'X' if index % 2 else 5}{letter}_SLICE"
        elif port in ("FXA", "FXB"):
            name = f"{port}{letter}_SLICE"
        elif port in ("CLK", "LSR", "CE"):
            name = f"{port}{part}_SLICE"
        elif port in ("WCK", "WRE"):
            name = {"WCK": "CLK1", "WRE": "LSR1"}[port]
        elif port == "F1":
            name = f"F{index + 1}_SLICE"
        elif port == "FCO":
            name = carry_in(index + 1) if index % 2 == 0 else "FCO_SLICE" if letter == "D" else f"FCO{letter}_SLICE"
        elif port == "FCI":
            name = carry_in(index)
    elif kind == "TRELLIS_RAMW" and port[:1] in _INPUTS:
        name = f"{port[0]}{4 + int(port[1])}_SLICE"
    elif kind == "DP16KD":
        name = f"J{port}_EBR"
    elif kind == "MULT18X18D":
        name = f"J{port}_MULT18"
    elif kind == "EHXPLLL":
        name = f"{port}_PLL" if port in ("CLKI", "CLKFB", "CLKINTFB") else f"J{port}_PLL"
    elif kind == "TRELLIS_IO" and port in _PAD:
        name = f"{_PAD[port]}{bel[-1]}_{PAD}"
    elif kind.endswith(REGISTERS) and port in _AT_PADS:
        name = f"{_AT_PADS[port]}{bel[-1]}_{kind}"
    elif kind == "DCCA" and port in ("CLKI", "CLKO"):
        return 0, 0, f"G_{port}_{bel}"
    return (*place, name) if name else None


def _equal(tables: tuple[int, int], inputs: tuple[list[Source], list[Source]]) -> bool:
    """Returns whether two tables are the same function of what their inputs are connected to."""
    signals: list[Any] = sorted({*inputs[0], *inputs[1]} - {"0", "1"})
    for values in itertools.product("01", repeat=len(signals)):
        value: dict[Source, str] = {"0": "0", "1": "1", **dict(zip(signals, values, strict=True))}
        places = [sum(int(value[source]) << i for i, source in enumerate(pins)) for pins in inputs]
        if tables[0] >> places[0] & 1 != tables[1] >> places[1] & 1:
            return False
    return True
