"""Lines and toggles of the NPU as Verilator counts them."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from amaranth.back import verilog

from tests.common.paths import ROOT, source_name
from tilewright.common.rtl_sources import rtl_sources
from tilewright.hw.connections import design
from tilewright.hw.interfaces import SEMAPHORE_BITS
from tilewright.hw.npu import Npu
from tilewright.hw.sim.build import Design, build_library
from tilewright.hw.verilog import TOP
from tilewright.isa.config import NpuConfig

WAIVERS = Path(__file__).with_name("waivers.toml")
_SOURCE = re.compile(r'\(\* src = "([^"]*)" \*\)')
#: How Verilator writes characters that no name in C++ may have.
_CODED = re.compile(r"__0([0-9A-Fa-f]{2})")
#: The name of a toggle: signal, bit of it if it has several, direction.
_TOGGLE = re.compile(r"(?P<signal>.*?)(?:\[(?P<bit>\d+)\])?:[01]->[01]$")
#: The kinds of Verilator's points, by the names of their pages.
LINES, TOGGLES = "lines", "toggles"


@dataclass(frozen=True)
class Point:
    """A point to cover: a line of the sources, or a toggle of a bit.

    Attributes:
        kind: LINES or TOGGLES.
        place: the part of the machine, "core.load.walker".
        name: of a bit with its direction, or of a line of the sources.
    """

    kind: str
    place: str
    name: str

    @property
    def unit(self) -> str:
        """The row of the point in tables: the part of the core, or what stands beside the core."""
        return ".".join(self.place.split(".")[:2])

    @property
    def whole(self) -> str:
        """Place and name; of a toggle those of its signal."""
        toggle = self.kind == TOGGLES and _TOGGLE.match(self.name)
        return f"{self.place}.{toggle['signal'] if toggle else self.name}".removeprefix(f"{TOP}.")

    @property
    def bit(self) -> int:
        """The bit of the signal that toggles; 0 of other points."""
        toggle = self.kind == TOGGLES and _TOGGLE.match(self.name)
        return int(toggle["bit"] or 0) if toggle else 0


@dataclass(frozen=True)
class Waiver:
    """Points that need not be covered, and why.

    Attributes:
        kind: of the points.
        match: a pattern for the place and name of signals, or of lines.
        reason: why.
        first, last: the bits that are waived, both among them.
        bits: those of them that are; all by default.
        way: "0->1" or "1->0", where only that one is; both by default.
    """

    kind: str
    match: str
    reason: str
    first: int = 0
    last: int = 1 << 16
    bits: frozenset[int] | None = None
    way: str = ""

    def fits(self, point: Point) -> bool:
        here = self.first <= point.bit <= self.last and (self.bits is None or point.bit in self.bits)
        here &= point.name.endswith(self.way)
        return point.kind == self.kind and here and fnmatchcase(point.whole, self.match)


def unused_bits(places: Iterable[int], config: NpuConfig) -> frozenset[int]:
    """Returns the bits that no legal semaphore number has, of words with such numbers at some places."""
    return frozenset(place + bit for place in places for bit in range(config.semaphores.bit_length(), SEMAPHORE_BITS))


def library(config: NpuConfig) -> tuple[Path, str]:
    """Returns the simulation that counts, and its Verilog."""
    kept: list[str] = []

    def text() -> str:
        if not kept:
            kept.append(verilog.convert_fragment(design(Npu(config), TOP), name=TOP, emit_src=True)[0])
        return kept[0]

    sources = [*rtl_sources(), Path(__file__)]
    title = f"the RTL simulation of {config.name!r} that counts what is covered"
    harness = ROOT / "hw" / "sim" / "harness.cpp"
    made = Design(f"coverage-{config.fingerprint}", title, TOP, harness, text, sources)
    return build_library(made, coverage=True), text()


def add(file: Path, counts: Counter[str]) -> None:
    """Adds the counts in a coverage file of Verilator, by its names of points."""
    for entry in file.read_text(encoding="latin-1").splitlines():
        if entry.startswith("C '"):
            keys, _, count = entry[3:].rpartition("' ")
            counts[keys] += int(count)


def read(counts: Mapping[str, int], text: str) -> dict[Point, int]:
    """Returns the count of each point; `text` is the Verilog. Toggles of values without a name in the sources are left
    out: they are inside expressions."""
    lines = text.splitlines()
    found: dict[Point, int] = {}
    for keys, count in counts.items():
        fields = dict(part.split("\x02", 1) for part in keys.split("\x01") if part)
        place = ".".join(fields.get("h", "").split(".")[2:]) or TOP
        if fields["page"].startswith("v_toggle"):
            name = _CODED.sub(lambda match: chr(int(match[1], 16)), fields["o"])
            if name.startswith(("$", "port$")):
                continue
            point = Point(TOGGLES, place, name)
        else:
            point = Point(LINES, place, f"{_source(lines, int(fields['l']))} {fields['o']}")
        found[point] = found.get(point, 0) + count
    return found


def _source(lines: Sequence[str], number: int) -> str:
    """Returns the line of the sources that a line of Verilog comes from: the last that was named before it."""
    for line in reversed(lines[:number]):
        if match := _SOURCE.search(line):
            first = match[1].split("|")[0]
            return source_name(first)
        if line.startswith("module "):
            break
    return "?"


def read_waivers(config: NpuConfig, path: Path = WAIVERS) -> list[Waiver]:
    """Reads the waivers of a machine. Raises ValueError for one without a reason."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("waiver", [])
    waivers = [
        Waiver(
            e["kind"], match, e.get("reason", "").strip(), **{k: e[k] for k in ("first", "last", "way") if k in e},
            bits=unused_bits(e["semaphores_at"], config) if "semaphores_at" in e else None,
        )
        for e in entries
        for match in e["match"]
    ]  # fmt: skip
    for waiver in waivers:
        if not waiver.reason:
            raise ValueError(f"{path.name}: {waiver.match} has no reason")
    return waivers


@dataclass(frozen=True)
class Coverage:
    """Points that are not covered, and what is wrong with the waivers of others.

    Attributes:
        missing: neither covered nor waived.
        waived: not covered, and need not be.
        idle: waivers that nothing fits.
        outdated: waivers of points that are covered, with one of these.
    """

    missing: set[Point]
    waived: set[Point]
    idle: list[Waiver]
    outdated: list[tuple[Waiver, Point]]


def apply_waivers(points: Mapping[Point, int], waivers: Iterable[Waiver]) -> Coverage:
    """Sorts points into covered, waived and missing ones."""
    missing = {point for point, count in points.items() if not count}
    waived: set[Point] = set()
    idle, outdated = [], []
    for waiver in waivers:
        fitting = {point for point in points if waiver.fits(point)}
        waived |= fitting & missing
        if not fitting:
            idle.append(waiver)
        elif fitting - missing:
            outdated.append((waiver, min(fitting - missing, key=str)))
    return Coverage(missing - waived, waived, idle, outdated)
