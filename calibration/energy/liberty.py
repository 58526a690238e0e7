"""Liberty files as far as power goes: areas, functions, capacitances, transition and internal energy of cells.

Units are pF, ns, V, nW, and pJ: a Liberty file's internal energy is in its unit of capacitance times V².
"""

from __future__ import annotations

import functools
import math
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
    """A group of a Liberty file: `name (arguments) { attributes, groups }`."""

    name: str
    arguments: list[str]
    attributes: dict[str, str] = field(default_factory=dict)
    complex: dict[str, list[str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def named(self, name: str) -> list[Group]:
        """Returns the groups within it that have a name."""
        return [group for group in self.groups if group.name == name]

    @property
    def title(self) -> str:
        """The first argument. Raises `ValueError` where there is none."""
        if not self.arguments:
            raise ValueError(f"a group {self.name} without a name")
        return self.arguments[0]

    def number(self, name: str, default: float | None = None) -> float:
        """Returns an attribute as a number. Raises `ValueError` if it is not finite, or missing without a default."""
        text = self.attributes.get(name)
        if text is None and default is not None:
            return default
        try:
            found = float(text or "")
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise ValueError(f"{name} must be a number, not {text!r}")
        return found


@dataclass(frozen=True)
class Table:
    """A look-up table over up to two axes; beyond an axis its nearest value holds."""

    axes: tuple[np.ndarray, ...]
    values: np.ndarray

    def at(self, *point: float) -> float:
        """Interpolates linearly at a point with one coordinate per axis."""
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
        """Returns the mean of rise and fall at a point: a long run has as many rising as falling edges."""
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
    """A cell of the library: area in µm², leakage in nW; `next_state` is the pin that a flip-flop samples, empty for
    gates."""

    name: str
    area: float
    leakage_nw: float
    pins: dict[str, Pin]
    next_state: str

    @functools.cached_property
    def inputs(self) -> list[str]:
        """Names of the input pins."""
        return [pin.name for pin in self.pins.values() if not pin.output]

    @functools.cached_property
    def outputs(self) -> list[str]:
        """Names of the output pins."""
        return [pin.name for pin in self.pins.values() if pin.output]

    def truth(self, output: str) -> int:
        """Returns the truth table of an output: bit i is its value for the inputs i, the first input being the lowest
        bit.

        Raises:
            UsageError: the output is no function of the inputs.
        """
        found, function = 0, self.pins[output].function
        for i in range(1 << len(self.inputs)):
            values = {name: bool(i >> n & 1) for n, name in enumerate(self.inputs)}
            try:
                found |= evaluate(function, values) << i
            except KeyError:
                raise UsageError(f"cell {self.name}: {output} is {function!r}, no function of its inputs") from None
        return found


@dataclass(frozen=True)
class Library:
    """A Liberty library: its cells by name, and the supply voltage in V."""

    name: str
    path: Path
    volts: float
    cells: dict[str, Cell]


def library_path() -> Path:
    """Returns the path of the Liberty file. Raises `UsageError`, which says what to install, if there is none."""
    path = Path(os.environ.get("TILEWRIGHT_LIBERTY", OSU018))
    if not path.is_file():
        raise UsageError(
            f"no Liberty file {path}: install Debian's qflow-tech-osu018 (make test-tools), "
            "or name a file with TILEWRIGHT_LIBERTY"
        )
    return path


def load(path: Path | None = None) -> Library:
    """Reads the library of a file, by default of `library_path()`.

    Raises:
        UsageError: there is no file, or it is no library that can be used.
    """
    return _load(path or library_path())


@functools.cache
def _load(path: Path) -> Library:
    try:
        return _library(parse(path.read_text(encoding="utf-8", errors="replace")), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no Liberty file that can be used: {error}") from None


def _library(top: Group, path: Path) -> Library:
    """Makes a library of the outermost group. Raises `ValueError` for what cannot be used."""
    if not {"1ns", "1V"} <= set(top.attributes.values()) or top.attributes.get("leakage_power_unit", "1nW") != "1nW":
        raise ValueError("units must be ns, V, pF and nW")
    if [part.lower() for part in top.complex.get("capacitive_load_unit", [])] != ["1", "pf"]:
        raise ValueError("the unit of capacitance must be pF")
    templates = {"scalar": Group("", [])} | {
        group.title: group for group in top.groups if group.name in ("lu_table_template", "power_lut_template")
    }
    cells = {}
    for group in top.named("cell"):
        try:
            cells[group.title] = _cell(group, templates)
        except ValueError as error:
            raise ValueError(f"cell {group.title}: {error}") from None
    volts = top.number("nom_voltage")
    if not cells or volts <= 0:
        raise ValueError(f"it has {len(cells)} cells and a nom_voltage of {volts:g}")
    return Library(top.title, path, volts, cells)


def _cell(group: Group, templates: dict[str, Group]) -> Cell:
    pins = {pin.title: _pin(pin, templates) for pin in group.named("pin")}
    state = group.named("ff")
    next_state = state[0].attributes.get("next_state", "") if state else ""
    if state and (next_state not in pins or not any(pin.clock for pin in pins.values())):
        pins, next_state = {}, ""  # it takes over more than a pin, as scan cells do: none that a netlist may have
    return Cell(group.title, group.number("area", 0), group.number("cell_leakage_power", 0), pins, next_state)


def _pin(group: Group, templates: dict[str, Group]) -> Pin:
    energy = tuple(_arcs(group.named("internal_power"), "rise_power", "fall_power", templates))
    transition = tuple(_arcs(group.named("timing"), "rise_transition", "fall_transition", templates))
    return Pin(
        group.title,
        group.attributes.get("direction") == "output",
        group.number("capacitance", 0),
        group.attributes.get("function", ""),
        energy,
        transition,
        group.attributes.get("clock") == "true",
    )


def _arcs(groups: list[Group], rise: str, fall: str, templates: dict[str, Group]) -> Iterator[Arc]:
    for group in groups:
        tables = [_table(inner, templates) for name in (rise, fall) for inner in group.named(name)]
        if len(tables) == 2:
            yield Arc(group.attributes.get("related_pin", ""), tables[0], tables[1])


def _table(group: Group, templates: dict[str, Group]) -> Table:
    """Makes a table of its group: the first axis is the input's transition, the second the load, if it has both."""
    if group.title not in templates:
        raise ValueError(f"{group.name} of an unknown template {group.title!r}")
    template = templates[group.title]
    variables = [template.attributes[f"variable_{n}"] for n in (1, 2, 3) if f"variable_{n}" in template.attributes]
    indices = [f"index_{n + 1}" for n in range(len(variables))]
    axes = [np.array(_numbers(group if index in group.complex else template, index)) for index in indices]
    values = np.array(_numbers(group, "values"))
    if len(axes) > 2 or len(values) != math.prod(map(len, axes)):
        raise ValueError(f"{group.name}: {len(values)} values over {len(axes)} axes")
    if any(len(axis) > 1 and np.diff(axis).min() <= 0 for axis in axes):
        raise ValueError(f"{group.name}: the numbers of an axis must rise")
    values = values.reshape([len(axis) for axis in axes])
    if len(axes) == 2 and "capacitance" in variables[0]:
        axes, values = axes[::-1], values.T
    return Table(tuple(axes), values)


def _numbers(group: Group, name: str) -> list[float]:
    if name not in group.complex:
        raise ValueError(f"{group.name} without {name}")
    found = [float(number) for text in group.complex[name] for number in text.replace(",", " ").split()]
    if not found or not all(map(math.isfinite, found)):
        raise ValueError(f"{group.name}: {name} must be numbers")
    return found


_TOKEN = re.compile(r'/\*.*?\*/|\\\n|\s+|("(?:[^"\\]|\\.)*")|([^\s(){}:;,"]+)|([(){}:;,])', re.DOTALL)


def parse(text: str) -> Group:
    """Parses the text of a Liberty file into its outermost group. Raises `ValueError` if it is not one group."""
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
    try:
        statement(root)
    except IndexError:
        raise ValueError("it ends within a group") from None
    if len(root.groups) != 1:
        raise ValueError("no library group")
    return root.groups[0]


def evaluate(function: str, values: dict[str, bool]) -> bool:
    """Evaluates a Liberty function: ! and ' negate, * & and a space are AND, ^ is XOR, + and | are OR."""
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
