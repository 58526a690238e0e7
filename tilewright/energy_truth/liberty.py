"""Liberty files as far as power goes: areas, functions, capacitances, transition and internal energy of cells.

Units are pF, ns, V, nW, and pJ: a Liberty file's internal energy is in its unit of capacitance times V².
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.errors import UsageError

#: Where Debian's qflow-tech-osu018 puts the file; $TILEWRIGHT_LIBERTY names another one.
OSU018 = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")


@dataclass
class Group:
    """`name (arguments) { attributes, groups }`."""

    name: str
    arguments: list[str]
    attributes: dict[str, str] = field(default_factory=dict)
    complex: dict[str, list[str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def named(self, name: str) -> list[Group]:
        return [group for group in self.groups if group.name == name]


@dataclass(frozen=True)
class Table:
    """Values over one or two axes; outside of them the nearest value holds."""

    axes: tuple[np.ndarray, ...]
    values: np.ndarray

    def at(self, *point: float) -> float:
        """By linear interpolation; one coordinate for each axis."""
        values = self.values
        for axis, x in zip(self.axes, point):
            x = float(np.clip(x, axis[0], axis[-1]))
            i = int(np.clip(np.searchsorted(axis, x) - 1, 0, max(0, len(axis) - 2)))
            if len(axis) == 1:
                values = values[0]
                continue
            part = (x - axis[i]) / (axis[i + 1] - axis[i])
            values = values[i] * (1 - part) + values[i + 1] * part
        return float(values)


@dataclass(frozen=True)
class Arc:
    """Tables from a related pin ("" = none) to a pin, one for its rise and one for its fall."""

    related: str
    rise: Table
    fall: Table

    def mean(self, *point: float) -> float:
        """Of rise and fall: over a long run there are as many of one as of the other."""
        return (self.rise.at(*point) + self.fall.at(*point)) / 2


@dataclass(frozen=True)
class Pin:
    """A pin: capacitance in pF, function of an output, energy per edge in pJ, transition times of an output in ns.

    The tables of an output are over (input transition, load) in the order given by `load_first`.
    """

    name: str
    output: bool
    capacitance: float
    function: str
    energy: tuple[Arc, ...]
    transition: tuple[Arc, ...]
    clock: bool


@dataclass(frozen=True)
class Cell:
    """A cell of the library; `next_state` is the pin a flip-flop takes over, empty for gates."""

    name: str
    area: float
    leakage_nw: float
    pins: dict[str, Pin]
    next_state: str

    @functools.cached_property
    def inputs(self) -> list[str]:
        return [pin.name for pin in self.pins.values() if not pin.output]

    @functools.cached_property
    def outputs(self) -> list[str]:
        return [pin.name for pin in self.pins.values() if pin.output]

    def truth(self, output: str) -> int:
        """Bit i is the output for the inputs i, the first input the lowest bit."""
        found = 0
        for i in range(1 << len(self.inputs)):
            values = {name: bool(i >> n & 1) for n, name in enumerate(self.inputs)}
            found |= evaluate(self.pins[output].function, values) << i
        return found


@dataclass(frozen=True)
class Library:
    """Cells by name, and the supply in V."""

    name: str
    path: Path
    volts: float
    cells: dict[str, Cell]


def library_path() -> Path:
    """The Liberty file. Raises `UsageError` that says what to install where there is none."""
    path = Path(os.environ.get("TILEWRIGHT_LIBERTY", OSU018))
    if not path.is_file():
        raise UsageError(
            f"no Liberty file {path}: install Debian's qflow-tech-osu018 (make test-tools), "
            "or name a file with TILEWRIGHT_LIBERTY"
        )
    return path


@functools.cache
def load(path: Path | None = None) -> Library:
    """Raises `UsageError` where there is no file or it cannot be read."""
    path = path or library_path()
    try:
        top = parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if not {"1ns", "1V"} <= set(top.attributes.values()) or top.attributes.get("leakage_power_unit", "1nW") != "1nW":
        raise UsageError(f"{path}: units must be ns, V, pF and nW")
    if [part.lower() for part in top.complex.get("capacitive_load_unit", [])] != ["1", "pf"]:
        raise UsageError(f"{path}: the unit of capacitance must be pF")
    templates = {
        group.arguments[0]: [group.attributes[f"variable_{n}"] for n in (1, 2) if f"variable_{n}" in group.attributes]
        for group in top.groups
        if group.name in ("lu_table_template", "power_lut_template")
    }
    cells = {group.arguments[0]: _cell(group, templates) for group in top.named("cell")}
    return Library(top.arguments[0], path, float(top.attributes["nom_voltage"]), cells)


def _cell(group: Group, templates: dict[str, list[str]]) -> Cell:
    pins = {pin.arguments[0]: _pin(pin, templates) for pin in group.named("pin")}
    state = group.named("ff")
    return Cell(
        group.arguments[0],
        float(group.attributes.get("area", 0)),
        float(group.attributes.get("cell_leakage_power", 0)),
        pins,
        state[0].attributes["next_state"] if state else "",
    )


def _pin(group: Group, templates: dict[str, list[str]]) -> Pin:
    energy = tuple(_arcs(group.named("internal_power"), "rise_power", "fall_power", templates))
    transition = tuple(_arcs(group.named("timing"), "rise_transition", "fall_transition", templates))
    return Pin(
        group.arguments[0],
        group.attributes.get("direction") == "output",
        float(group.attributes.get("capacitance", 0)),
        group.attributes.get("function", ""),
        energy,
        transition,
        group.attributes.get("clock") == "true",
    )


def _arcs(groups: list[Group], rise: str, fall: str, templates: dict[str, list[str]]) -> Iterator[Arc]:
    for group in groups:
        tables = [_table(inner, templates) for name in (rise, fall) for inner in group.named(name)]
        if len(tables) == 2:
            yield Arc(group.attributes.get("related_pin", ""), tables[0], tables[1])


def _table(group: Group, templates: dict[str, list[str]]) -> Table:
    """With the input's transition as its first axis and the load as its second one, where it has both."""
    variables = templates[group.arguments[0]]
    axes = [np.array(_numbers(group.complex[f"index_{n + 1}"])) for n in range(len(variables))]
    values = np.array(_numbers(group.complex["values"])).reshape([len(axis) for axis in axes])
    if len(axes) == 2 and "capacitance" in variables[0]:
        axes, values = axes[::-1], values.T
    return Table(tuple(axes), values)


def _numbers(texts: list[str]) -> list[float]:
    return [float(number) for text in texts for number in text.replace(",", " ").split()]


_TOKEN = re.compile(r'/\*.*?\*/|\\\n|\s+|("(?:[^"\\]|\\.)*")|([^\s(){}:;,"]+)|([(){}:;,])', re.DOTALL)


def parse(text: str) -> Group:
    """The group a Liberty text consists of. Raises `ValueError` where it is none."""
    tokens = [m[1] or m[2] or m[3] for m in _TOKEN.finditer(text) if m[1] or m[2] or m[3]]
    at = 0

    def take(expected: str = "") -> str:
        nonlocal at
        at += 1
        if expected and tokens[at - 1] != expected:
            raise ValueError(f"{expected!r} expected, found {tokens[at - 1]!r}")
        return tokens[at - 1]

    def statement(into: Group) -> None:
        name = take()
        if name == ";":
            return
        if tokens[at] == ":":
            take()
            value = take()
            while tokens[at] not in (";", "}") and tokens[at + 1] != ":":
                value += " " + take()
            into.attributes[name] = value.strip('"')
            return
        take("(")
        arguments = []
        while (token := take()) != ")":
            if token != ",":
                arguments.append(token.strip('"').replace("\\\n", " "))
        if tokens[at : at + 1] == ["{"]:
            take()
            group = Group(name, arguments)
            into.groups.append(group)
            while tokens[at] != "}":
                statement(group)
            take()
        else:
            into.complex[name] = arguments

    root = Group("", [])
    statement(root)
    if len(root.groups) != 1:
        raise ValueError("no library group")
    return root.groups[0]


def evaluate(function: str, values: dict[str, bool]) -> bool:
    """A Liberty function: ! and ' negate, * & and a space are AND, ^ is XOR, + and | are OR."""
    tokens = re.findall(r"[A-Za-z_]\w*|[!'*&^+|()]|[01]", function)
    at = 0

    def peek() -> str:
        return tokens[at] if at < len(tokens) else ""

    def factor() -> bool:
        nonlocal at
        token = peek()
        at += 1
        if token == "!":
            return not factor()
        if token == "(":
            value = either()
            at += 1
        else:
            value = token == "1" if token in ("0", "1") else values[token]
        while peek() == "'":
            at += 1
            value = not value
        return value

    def exclusive() -> bool:
        nonlocal at
        value = factor()
        while peek() == "^":
            at += 1
            value ^= factor()
        return value

    def both() -> bool:
        nonlocal at
        value = exclusive()
        while (token := peek()) and token not in ")+|":
            at += token in "*&"
            value &= exclusive()
        return value

    def either() -> bool:
        nonlocal at
        value = both()
        while peek() in ("+", "|"):
            at += 1
            value |= both()
        return value

    return either()
