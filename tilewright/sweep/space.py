"""`Space`: what a sweep varies, read from TOML.

base = "base"                        # preset or file every point starts from
models = ["resnet8", "vww"]          # default of --models
family = "ecp5"                      # FPGA the area is counted for
clock_mhz = "model"                  # the calibrated model, a number, or an expression over fields and area
constraints = ["scratchpad_bytes <= 300_000", "lut <= 40_000", "cycles <= 2_000_000"]

[axes]                               # fields of NpuConfig, small_weights of the compiler, clock_mhz
block_in = [8, 16, 32]               # a list,
act_rows = { min = 1024, max = 16384, log2 = true }     # a range by doubling,
acc_rows = { min = 512, max = 2048, step = 512 }        # or by steps,
block_out = "block_in"               # or an expression over the other fields
row_unit = { choices = [0, 1], when = "block_in >= 16", else = 0 }  # only where axes before it allow

[memory]                             # fields of MemoryTiming
read_latency = [32, 64, 128]

[search]
method = "grid"                      # or "random", "pareto"
sampler = "nsga2"                    # of pareto; or "nsga3", "tpe", "gp"
budget = 200                         # points, for random and pareto
seed = 0
prune = true                         # leave out points that lose to others before they are compiled

[objective]
minimise = ["microseconds", "lut"]
weights = { resnet8 = 2.0 }          # of networks; 1 by default

`board = NAME` takes the family from a board, and `[boards.NAME]` changes the space for it: see `boards`. A list of
boards makes a space of each.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.common.documents import read_document
from tilewright.common.text import suggest
from tilewright.fpga import fmax
from tilewright.isa.config import ConfigError, NpuConfig
from tilewright.isa.timing import MemoryTiming
from tilewright.sweep.axes import CONFIG_FIELDS, MEMORY_FIELDS, Axis, parse_axes, refuse_unknown, whole
from tilewright.sweep.boards import CAPACITY, capacity_of, choose_board, family_of, named_boards
from tilewright.sweep.expressions import Expression, SpaceError

METHODS = ("grid", "random", "pareto")
#: Optuna's, of the method "pareto".
SAMPLERS = ("nsga2", "nsga3", "tpe", "gp")
#: What counts the area.
TOOLS = ("model", "yosys", "nextpnr")
DERIVED = ("macs_per_cycle", "scratchpad_bytes", "bus_bytes", "tile_bytes")
AREA = ("lut", "ff", "dsp", "bram")
#: The clock by the calibrated model of the family.
MODEL_CLOCK = "model_mhz"
#: Known where there is a clock: one that is given, that of place and route, or that of the model.
TIMES = ("clock_mhz", "microseconds", "geomean_microseconds")
#: The same of one network, with _NETWORK behind it.
NETWORK_TIME = "microseconds"
#: `clock_mhz` of a space that takes the calibrated model; it does without `clock_mhz` too, where the family has one.
MODEL = "model"
#: µJ with external memory, and without it.
ENERGIES = ("microjoules", "chip_microjoules")
#: Results over all networks; of one network: the name with _NETWORK behind it, as in PER_NETWORK.
RESULTS = ("cycles", "geomean_cycles", "utilization", "dram_bytes", "npu_mac_fraction", *ENERGIES, "fmax_mhz", *TIMES)
PER_NETWORK = ("cycles", "dram_bytes", "utilization", *ENERGIES)
_TABLES = (
    "base", "models", "family", "clock_mhz", "constraints", "axes", "memory", "search", "objective", "board", "boards",
)  # fmt: skip
MAX_GRID = 100_000
_UNCHOSEN = {"small_weights": 0}
#: Sizes that a program must fit into, and that nothing else depends on: it takes the same cycles where they are larger.
ROOM = ("act_rows", "wgt_tiles", "acc_rows", "prm_rows")


@dataclass(frozen=True)
class Point:
    """One configuration with its memory.

    Attributes:
        small_weights: of the compiler; see `CompileOptions`.
        clock_mhz: where it is an axis, None elsewhere.
    """

    config: NpuConfig
    timing: MemoryTiming
    small_weights: bool = False
    clock_mhz: int | None = None

    @functools.cached_property
    def id(self) -> str:
        """16 hex digits; equal for points that behave equally, at whatever clock."""
        parts = [self.config.fingerprint, asdict(self.timing), *([True] if self.small_weights else [])]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def key(self) -> tuple[str, int | None]:
        """Equal for points of equal metrics."""
        return self.id, self.clock_mhz

    @functools.cached_property
    def frame(self) -> str:
        """Equal for points that differ in nothing but the sizes of scratchpads."""
        fields = {k: v for k, v in self.config.to_dict().items() if k not in (*ROOM, "name")}
        return json.dumps([fields, asdict(self.timing), self.small_weights, self.clock_mhz], sort_keys=True)

    @functools.cached_property
    def room(self) -> tuple[int, ...]:
        """The sizes of scratchpads."""
        return tuple(getattr(self.config, name) for name in ROOM)

    def holds(self, other: Point) -> bool:
        """Returns True if another point differs in smaller scratchpads alone."""
        if self.frame != other.frame or self.room == other.room:
            return False
        return all(a >= b for a, b in zip(self.room, other.room))

    def values(self) -> dict[str, float]:
        """Fields and derived sizes by name."""
        found: dict[str, float] = {name: getattr(self.config, name) for name in (*CONFIG_FIELDS, *DERIVED)}
        found |= asdict(self.timing) | {"small_weights": self.small_weights}
        return found | ({} if self.clock_mhz is None else {"clock_mhz": self.clock_mhz})


@dataclass(frozen=True)
class Space:
    """A space of configurations to sweep; the module has an example.

    Attributes:
        base, timing: what the axes change.
        axes: independent ones, of configuration and memory, and `CHOICES`.
        derived: fields given by expressions.
        board: the board it is for, None for none.
        clock: MHz that times are given for; None for those of place and route, or of the model.
        clock_model: whether the family's calibrated model of the clock is taken where nothing else gives one.
        constraints: all must hold.
        objectives: to be made small.
        weights: per network.
        method, sampler, budget, seed: of the search.
        prune: points that lose to others in everything are not compiled; see `ladder`.
        text: canonical JSON, which identifies the space.
    """

    base: NpuConfig
    timing: MemoryTiming
    axes: tuple[Axis, ...]
    derived: tuple[tuple[str, Expression], ...]
    board: str | None
    clock: Expression | None
    clock_model: bool
    constraints: tuple[Expression, ...]
    objectives: tuple[Expression, ...]
    weights: dict[str, float]
    models: tuple[str, ...]
    family: str
    method: str
    sampler: str
    budget: int
    seed: int
    prune: bool
    text: str = field(repr=False)

    @property
    def size(self) -> int:
        """Points of the full grid, those counted again and again that differ only where a condition does not hold."""
        return math.prod(len(axis.values) for axis in self.axes)

    @functools.cached_property
    def grid(self) -> list[dict[str, int]]:
        """All assignments, each once."""
        if not self._conditional:
            return [self.assignment(n) for n in range(self.size)]
        return [dict(one) for one in dict.fromkeys(tuple(self.assignment(n).items()) for n in range(self.size))]

    @property
    def _conditional(self) -> bool:
        return any(axis.when is not None for axis in self.axes)

    def values(self, point: Point) -> dict[str, float]:
        """Names whose values need no results: fields and sizes of a point, and what the board has."""
        return point.values() | (capacity_of(self.board) if self.board is not None else {})

    def assignment(self, number: int) -> dict[str, int]:
        """Axis values of a point of the grid; the last axis varies fastest."""
        places = []
        for axis in reversed(self.axes):
            number, at = divmod(number, len(axis.values))
            places.append(at)
        return self.assigned(dict(zip((axis.field for axis in self.axes), reversed(places))))

    def assigned(self, places: dict[str, int]) -> dict[str, int]:
        """Axis values by position on each axis. Raises `SpaceError` where a condition has no value."""
        found = {axis.field: axis.values[places[axis.field]] for axis in self.axes}
        if not self._conditional:
            return found
        fixed = self._base_values
        for axis in self.axes:
            if axis.when is not None and not axis.when.value(fixed | found):
                found[axis.field] = fixed[axis.field] if axis.otherwise is None else axis.otherwise
        return found

    def places(self, assignment: dict[str, int]) -> dict[str, int]:
        """Positions on the axes that `assigned` makes this assignment of."""
        found = {axis.field: (axis.values, assignment[axis.field]) for axis in self.axes}
        return {name: values.index(value) if value in values else 0 for name, (values, value) in found.items()}

    @functools.cached_property
    def _base_values(self) -> dict[str, Any]:
        return {k: v for k, v in self.base.to_dict().items() if k != "name"} | asdict(self.timing) | _UNCHOSEN

    def point(self, assignment: dict[str, int]) -> Point:
        """Raises `ConfigError` where the fields contradict each other."""
        values: dict[str, Any] = self.base.to_dict() | asdict(self.timing) | _UNCHOSEN | assignment
        for name, expression in self.derived:
            numbers = {k: v for k, v in values.items() if k != "name"}
            found = expression.value(numbers)
            values[name] = int(found) if float(found).is_integer() else found
        try:
            timing = MemoryTiming(**{name: values[name] for name in MEMORY_FIELDS})
        except ValueError as error:
            raise ConfigError(str(error)) from None
        label = "-".join(str(v) for v in assignment.values()) or self.base.name
        config = self.base.with_(**{name: values[name] for name in CONFIG_FIELDS})
        clock = assignment.get("clock_mhz")
        return Point(replace(config, name=label), timing, bool(values["small_weights"]), clock)


def boards_of(path: str | Path) -> list[str]:
    """The boards that a space in a file names. Raises `SpaceError` as `load_space`."""
    path = Path(path)
    table = _read(path)
    try:
        return named_boards(table) if isinstance(table, dict) else []
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from None


def _read(path: Path) -> Any:
    try:
        return read_document(path, toml=True)
    except OSError as error:
        raise SpaceError(f"cannot read space {path}: {error.strerror}") from None
    except ValueError as error:
        raise SpaceError(f"{path}: {error}") from None


def load_space(
    path: str | Path, networks: Iterable[str] | None = None, *, clock_mhz: float | None = None, board: str | None = None
) -> Space:
    """Reads a space.

    Args:
        networks: names of the networks swept; by default the file's own.
        clock_mhz: in place of the file's own.
        board: in place of the file's own, which else is its first one.

    Raises:
        SpaceError: unreadable, or anything unknown or contradictory in it.
    """
    path = Path(path)
    table = _read(path)
    try:
        if isinstance(table, dict):
            table = choose_board(table, board)
            if clock_mhz is not None:
                table |= {"clock_mhz": clock_mhz}
        return parse_space(table, networks)
    except SpaceError as error:
        raise SpaceError(f"{path}: {error}") from None


def parse_space(table: Any, networks: Iterable[str] | None = None) -> Space:
    """Reads a space from parsed TOML; raises as `load_space`."""
    if not isinstance(table, dict):
        raise SpaceError(f"a space must be a table, not {table!r}")
    refuse_unknown(table, _TABLES, "the space")
    table = choose_board(table, None)
    try:
        base = NpuConfig.load(_of_type(table.get("base", "base"), str, "base"))
    except ConfigError as error:
        raise SpaceError(f"base: {error}") from None
    axes_table = _of_type(table.get("axes", {}), dict, "[axes]")
    axes, derived = parse_axes(axes_table, _of_type(table.get("memory", {}), dict, "[memory]"))
    on_axis = "clock_mhz" in axes_table
    if on_axis and "clock_mhz" in table:
        raise SpaceError("[axes] clock_mhz: the space, its board or the command gives a clock already")
    search = _of_type(table.get("search", {}), dict, "[search]")
    refuse_unknown(search, ("method", "sampler", "budget", "seed", "prune"), "[search]")
    method, sampler = search.get("method", "grid"), search.get("sampler", SAMPLERS[0])
    for key, value, accepted in (("method", method, METHODS), ("sampler", sampler, SAMPLERS)):
        if value not in accepted:
            raise SpaceError(f"[search] {key} must be one of {', '.join(accepted)}, not {value!r}")
    if "sampler" in search and method != "pareto":
        raise SpaceError(f'[search] sampler is for method = "pareto", not {method!r}')
    objective = _of_type(table.get("objective", {}), dict, "[objective]")
    refuse_unknown(objective, ("minimise", "weights"), "[objective]")
    models = tuple(_strings(table.get("models", []), "models"))
    swept = tuple(networks) if networks is not None else models
    weights = _weights(_of_type(objective.get("weights", {}), dict, "[objective] weights"), swept)
    board = table.get("board")
    static = (*CONFIG_FIELDS, *MEMORY_FIELDS, *DERIVED, *AREA, "small_weights")
    family = _of_type(table.get("family", "ecp5"), str, "family")
    static = (*static, *(CAPACITY if board is not None else ()))
    static = (*static, *((MODEL_CLOCK,) if family in fmax.calibrated() else ()))
    names = (*static, *RESULTS, *(f"{key}_{network_key(n)}" for key in (*PER_NETWORK, NETWORK_TIME) for n in swept))
    clocked = family if board is None else family_of(board)
    given = "clock_mhz" if on_axis else table.get("clock_mhz", MODEL if clocked in fmax.calibrated() else None)
    if given == MODEL and clocked not in fmax.calibrated():
        have = ", ".join(fmax.calibrated()) or "none"
        raise SpaceError(f"clock_mhz: no model of the clock of {clocked!r}, only of {have}; give an expression")
    minimise = ["cycles" if given is None else "microseconds", "lut"]
    # What a default was then is kept, for who reads it later.
    settled = table | {"objective": {"minimise": minimise} | objective}
    if given and not on_axis:
        settled["clock_mhz"] = given
    space = Space(
        base=base,
        timing=MemoryTiming(),
        axes=tuple(axes),
        derived=tuple(derived),
        board=board,
        clock=_clock(given, (*static, "clock_mhz") if on_axis else static) if given not in (None, MODEL) else None,
        clock_model=given == MODEL,
        constraints=tuple(
            Expression(text, names, f"constraints[{n}]")
            for n, text in enumerate(_strings(table.get("constraints", []), "constraints"))
        ),
        objectives=tuple(
            Expression(each, names, f"[objective] minimise[{n}]")
            for n, text in enumerate(_strings(objective.get("minimise", minimise), "[objective] minimise"))
            for each in _of_every_network(text, swept)
        ),
        weights=weights,
        models=models,
        family=family,
        method=method,
        sampler=sampler,
        budget=whole(search.get("budget", 100), 1, 1_000_000, "[search] budget"),
        seed=whole(search.get("seed", 0), 0, 2**32 - 1, "[search] seed"),
        prune=_of_type(search.get("prune", True), bool, "[search] prune"),
        text=json.dumps(settled, sort_keys=True),
    )
    if not space.objectives:
        raise SpaceError("[objective] minimise must have at least one expression")
    if method == "grid" and space.size > MAX_GRID:
        raise SpaceError(f"the grid has {space.size:,} points, at most {MAX_GRID:,} are swept; use random or pareto")
    return space


def _clock(value: Any, known: tuple[str, ...]) -> Expression:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    return Expression(value, known, "clock_mhz")


def _of_every_network(text: str, networks: Iterable[str]) -> list[str]:
    """Returns an objective, or one for every network where it is a name that ends with `_*`."""
    start = text.removesuffix("_*")
    if start == text or not start.isidentifier():
        return [text]
    return [f"{start}_{network_key(name)}" for name in networks]


def network_key(name: str) -> str:
    """A network's name as part of an expression's name."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _of_type(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        wanted = {"dict": "a table", "str": "a string", "bool": "true or false"}[kind.__name__]
        raise SpaceError(f"{where} must be {wanted}, not {value!r}")
    return value


def _strings(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise SpaceError(f"{where} must be a list of strings, not {value!r}")
    return value


def _weights(table: dict[str, Any], networks: tuple[str, ...]) -> dict[str, float]:
    for name, weight in table.items():
        if networks and name not in networks:
            hint = suggest(name, networks)
            raise SpaceError(
                f"[objective] weights: no network {name!r} is swept{hint}; there are {', '.join(networks)}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
            raise SpaceError(f"[objective] weights {name} must be a number from 0 on, not {weight!r}")
    return {name: float(table.get(name, 1.0)) for name in networks}
