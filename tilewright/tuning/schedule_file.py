"""Schedules as files that people read, edit and give back: the decisions of the tuning log with names, in TOML.

A file has the steps of a program in order, and of each its units: layers that run alone, or as a group so many rows (or
some channels) at a time. Of layers it has the tiles, and the row of ACT from which their result stays on the chip.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.common.text import suggest
from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of, schedule_of
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.schedule.search import search
from tilewright.errors import UsageError

_UNIT = ("layers", "rows", "by_channels", "tiles", "stays")


def labels(problem: StepProblem) -> list[str]:
    """Returns a name for each layer of a step: its own, with #2, #3, ... where layers share one."""
    seen: dict[str, int] = {}
    found = []
    for layer in problem.layers:
        seen[layer.name] = seen.get(layer.name, 0) + 1
        found.append(layer.name if seen[layer.name] == 1 else f"{layer.name} #{seen[layer.name]}")
    return found


@dataclass
class Recorder:
    """A scheduler that takes what another one or the search decides, and keeps it.

    Attributes:
        first: asked first, such as the schedules of a log.
        effort: effort of the search.
        steps: text of each step, in order.
    """

    first: Any
    effort: int
    steps: list[list[str]] = field(default_factory=list)

    def __call__(self, problem: StepProblem) -> Schedule:
        schedule = self.first(problem) if self.first is not None else None
        if schedule is None:
            schedule = search(problem, self.effort)
        self.steps.append([*_step_lines(problem, schedule)])
        return schedule


def text_of(model: str, config: str, cycles: int, steps: Iterable[Sequence[str]]) -> str:
    """Returns the text of a schedule file.

    Args:
        model, config: names, for people.
        cycles: exact cycles of the program.
        steps: lines of each step, as a `Recorder` keeps them.
    """
    lines = [
        f"# The schedule of {model} on {config}: {cycles:,} cycles.",
        f"# Edit it and give it back: tilewright compile {model}.onnx --config {config} --schedule FILE -o PROGRAM",
        f"model = {json.dumps(model)}",
        f"config = {json.dumps(config)}",
        f"cycles = {cycles}",
    ]
    for step in steps:
        lines += ["", "[[step]]", *step]
    return "\n".join(lines) + "\n"


def _step_lines(problem: StepProblem, schedule: Schedule) -> Iterable[str]:
    """Yields the lines of a step."""
    taken = _emitted(problem, schedule).taken
    names, decisions = labels(problem), decisions_of(schedule)
    stays = dict(decisions.stays)
    for first, unit in zip(schedule.starts(), schedule.units):
        numbers = range(first, first + len(unit.layers))
        yield "[[step.unit]]"
        yield f"layers = {json.dumps([names[n] for n in numbers])}"
        if unit.fused:
            yield "by_channels = true" if unit.by_channel else f"rows = {unit.step}"
        for number in unit.tiled(first):
            plan = taken.get(id(problem.layers[number]))
            if plan is not None and hasattr(plan.tiling, "_fields"):
                tile = zip(plan.tiling._fields, plan.tiling, strict=True)
                sizes = ", ".join(f"{name} = {json.dumps(size)}" for name, size in tile)
                yield f"tiles.{json.dumps(names[number])} = {{ {sizes} }}"
        for number in numbers:
            if number in stays:
                yield f"stays.{json.dumps(names[number])} = {stays[number]}"


def _emitted(problem: StepProblem, schedule: Schedule) -> Context:
    """Returns the context in which the work of a schedule was counted."""
    context = problem.dry_context()
    schedule.use_tiles(context, problem.layers)
    emit_step(context, schedule.units, schedule.stays)
    return context


class GivenSchedule:
    """The scheduler that takes a file's schedule, step by step.

    Args:
        path: the file.

    Raises:
        UsageError: the file cannot be read, or is no schedule.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the schedule {path}: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path}: {error}") from None
        steps = values.get("step")
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise UsageError(f"{path} is no schedule: it has no [[step]]")
        self._steps: list[dict[str, Any]] = steps
        self._used = 0

    def __call__(self, problem: StepProblem) -> Schedule:
        where = f"{self.path}, step {self._used}"
        if self._used == len(self._steps):
            raise UsageError(f"{self.path} has {len(self._steps)} steps of the NPU, the program has more")
        decisions = _decisions(where, self._steps[self._used], problem)
        self._used += 1
        try:
            schedule = schedule_of(problem, decisions)
            context = _emitted(problem, schedule)
        except CompileError as error:
            raise UsageError(f"{where}: {_named(str(error), problem)}") from None
        for number, wanted in decisions.tiles:
            layer = problem.layers[number]
            plan = context.taken.get(id(layer))
            if plan is not None and plan.numbers() != wanted:
                raise UsageError(
                    f"{where}: the tile {wanted} of {labels(problem)[number]!r} does not fit the machine and what "
                    f"stays in ACT; the compiler would take {plan.numbers()}"
                )
        return schedule

    def require_all_used(self) -> None:
        """Raises `UsageError` if the program has fewer steps."""
        if self._used < len(self._steps):
            raise UsageError(f"{self.path} has {len(self._steps)} steps of the NPU, the program has {self._used}")


def _decisions(where: str, step: Mapping[str, Any], problem: StepProblem) -> Decisions:
    """Returns the decisions of a step of a file.

    Raises:
        UsageError: it names other layers, or has other keys or values than there are.
    """
    names = labels(problem)
    numbers = {name: number for number, name in enumerate(names)}
    units, stays, tiles = [], {}, {}
    order: list[str] = []
    for unit in step.get("unit", []):
        unknown = [key for key in unit if key not in _UNIT]
        if unknown:
            raise UsageError(
                f"{where}: unknown key {unknown[0]!r}{suggest(unknown[0], _UNIT)}; known: {', '.join(_UNIT)}"
            )
        layers = unit.get("layers", [])
        for name in (*layers, *unit.get("tiles", ()), *unit.get("stays", ())):
            if name not in numbers:
                raise UsageError(f"{where}: there is no layer {name!r}{suggest(name, names)}")
        order += layers
        rows = 0 if unit.get("by_channels") else unit.get("rows", 0)
        if not isinstance(rows, int) or rows < 0 or (len(layers) > 1 and not rows and not unit.get("by_channels")):
            raise UsageError(f"{where}: the group of {layers[0]!r} needs rows = N, or by_channels = true")
        units.append((len(layers), rows))
        for name, row in unit.get("stays", {}).items():
            if not isinstance(row, int):
                raise UsageError(f"{where}: {name!r} stays in ACT from a row on, a number, not {row!r}")
            stays[numbers[name]] = row
        for name, tile in unit.get("tiles", {}).items():
            tiles[numbers[name]] = _tile(where, name, tile, problem, numbers[name])
    if order != names:
        at = next((i for i, (a, b) in enumerate(zip(order, names)) if a != b), min(len(order), len(names)))
        found = repr(order[at]) if at < len(order) else "the end"
        wanted = repr(names[at]) if at < len(names) else "the end"
        raise UsageError(f"{where}: layers run in the order of the model: {wanted} comes next, not {found}")
    return Decisions(tuple(sorted(stays.items())), tuple(units), tuple(sorted(tiles.items())))


def _tile(where: str, name: str, tile: Any, problem: StepProblem, number: int) -> tuple[int, ...]:
    """Returns a tiling as plain numbers. Raises `UsageError` if it has other sizes than the layer's kind."""
    layer = problem.layers[number]
    kind = layer.plan(problem.dry_context(), problem.config.act_rows).tiling
    if not isinstance(tile, dict) or tile.keys() != set(kind._fields):
        raise UsageError(f"{where}: the tile of {name!r} has {', '.join(kind._fields)}, not {tile!r}")
    return tuple(int(tile[size]) for size in kind._fields)


def _named(text: str, problem: StepProblem) -> str:
    """Returns a message about layers by number with the names of the first and the last one."""
    found = labels(problem)
    return text + (f" (layers 0..{len(found) - 1} are {found[0]!r} to {found[-1]!r})" if "layer" in text else "")
