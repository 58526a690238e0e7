"""Nets of a routed ECP5 and its clocks, as numbers, by the wires of a configuration."""

from __future__ import annotations

import re
from collections import deque

from tilewright.fpga.errors import FpgaError
from verification.netlists.cells import ONE, ZERO, Numbers
from verification.netlists.ecp5_cells import PLL_OUTPUTS, edges_of
from verification.netlists.trellis import Configuration, Source, Wire

#: Outputs of cells, and what they are outputs of.
OUTPUTS = {
    "table": re.compile(r"F(\d)_SLICE"),
    "register": re.compile(r"Q(\d)_SLICE"),
    "select": re.compile(r"(F5|FX)([A-D])_SLICE"),
    "carry": re.compile(r"FC[IO]([A-D]?)1?_SLICE"),
    "block": re.compile(r"JDO([AB])(\d+)_EBR"),
    "multiplier": re.compile(r"JP(\d+)_MULT18"),
    "pad": re.compile(r"JPADDI[A-D]_PIO"),
    "pad_register": re.compile(r"JINFF([A-D])_S?IOLOGIC"),
    "pll": re.compile(r"JLOCK_PLL"),
}
_CLOCK = re.compile(r"J(?P<output>CLKO(P|S\d?))_PLL|JPADDI[A-D]_PIO")


def output_of(wire: Wire) -> tuple[str, re.Match[str]] | None:
    """Returns the kind of cell of which a wire is an output, and the parts of its name; None if it is none."""
    for kind, name in OUTPUTS.items():
        if match := name.fullmatch(wire[2]):
            return kind, match
    return None


def slice_of(cell: int) -> str:
    """Returns the name of the slice of one of the eight LUTs or registers of a tile."""
    return f"SLICE{'ABCD'[cell // 2]}"


class Nets:
    """Nets and clocks that have been asked for.

    Attributes:
        numbers: clocks are added to them, and inverters.
        found: wires that are outputs of cells, with the number of their net: the cells are not made yet.
        parts: as `luts` of the numbers, of cells that are no LUT4.
        has_global_reset: whether the global reset can be set while the machine runs.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration, self.numbers = configuration, Numbers()
        self.found: deque[tuple[Wire, int]] = deque()
        self.parts: list[list[int]] = []
        self._nets: dict[Source, int] = {"0": ZERO, "1": ONE}
        self._next = 2
        self._inverses: dict[int, int] = {}
        self._clocks_at: tuple[int, int] | None = None
        # Without its cell it ends with the configuration.
        self.has_global_reset = any("GSR.GSRMODE" in settings for settings in configuration.settings.values())

    @property
    def count(self) -> int:
        """Number of nets, constants included."""
        return self._next

    def net(self, source: Source) -> int:
        """Returns the number of a net, by where it comes from; what drives it is made later."""
        if source not in self._nets:
            assert isinstance(source, tuple)
            constant = self.constant(source)
            if constant is None:
                self._nets[source] = self.new()
                self.found.append((source, self._nets[source]))
            else:
                self._nets[source] = constant
        return self._nets[source]

    def new(self) -> int:
        self._next += 1
        return self._next - 1

    def constant(self, wire: Wire) -> int | None:
        """nextpnr makes constants from LUTs without inputs."""
        match = OUTPUTS["table"].fullmatch(wire[2])
        settings = self.configuration.settings.get(wire[:2], {})
        if match is None:
            return None
        cell = int(match[1])
        name = slice_of(cell)
        tied = all(settings.get(f"{name}.{pin}{cell % 2}MUX") == "1" for pin in "ABCD")
        if settings.get(f"{name}.MODE") != "LOGIC" or not tied:
            return None
        return (ZERO, ONE)[int(settings[f"{name}.K{cell % 2}.INIT"][0])]

    def input(self, place: tuple[int, int], name: str) -> int:
        return self.end((*place, name))

    def end(self, wire: Wire) -> int:
        """Returns the net that comes to a wire."""
        return self.net(self.configuration.source(wire))

    def inverse(self, net: int) -> int:
        if net in (ZERO, ONE):
            return ONE - net
        if net not in self._inverses:
            self._inverses[net] = self.new()
            self.parts.append([net, ZERO, ZERO, ZERO, ZERO, self._inverses[net], 0b01])
        return self._inverses[net]

    def setting(self, place: tuple[int, int], name: str) -> str:
        try:
            return self.configuration.settings[place][name]
        except KeyError:
            raise FpgaError(f"column {place[0]}, row {place[1]}: {name} is needed and not set") from None

    def expect(self, place: tuple[int, int], name: str, *values: str) -> None:
        """Raises FpgaError if a setting has none of these values."""
        value = self.setting(place, name)
        if value not in values:
            raise FpgaError(f"column {place[0]}, row {place[1]}: no model of {name} {value}")

    # Clocks.

    def clock(self, wire: Wire) -> int:
        """Returns the number of a clock, by a wire that it comes to."""
        return self.numbers.clocks[self.clock_net(wire)]

    def clock_net(self, wire: Wire) -> int:
        """Returns the net of a clock, behind the network of clocks: an output of the PLL, or a pin."""
        source = self.configuration.source(wire)
        match = _CLOCK.fullmatch(source[2]) if isinstance(source, tuple) else None
        if not isinstance(source, tuple) or match is None:
            raise FpgaError(f"column {wire[0]}, row {wire[1]}: the clock {wire[2]} comes from {source}")
        if match["output"]:  # the first output is clock 0
            for output in (PLL_OUTPUTS[0], match["output"]):
                self._add_clock((*source[:2], f"J{output}_PLL"), self.edges(source[:2], output))
        else:
            self._add_clock(source, (1, 0))
        return self._nets[source]

    def _add_clock(self, source: Wire, edges: tuple[int, int]) -> None:
        self._clocks_at = self._clocks_at or source[:2]
        if source[:2] != self._clocks_at:
            raise FpgaError("a netlist is simulated with clocks of one PLL, this one has others")
        if source not in self._nets:
            self._nets[source] = self.new()
        self.numbers.clock(self._nets[source], edges)

    def edges(self, place: tuple[int, int], output: str) -> tuple[int, int]:
        """Returns the edges of an output of the PLL."""
        at = self.configuration.place_with("CLKFB_DIV", near=place)
        self.expect(at, f"{output}_ENABLE", "ENABLED")
        return edges_of(lambda name: int(self.setting(at, name), 2) + name.endswith("_DIV"), output)
