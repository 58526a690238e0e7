"""`Axis`: what a sweep varies, and the values it takes: a list, a range by doubling or by steps, under a condition."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from typing import Any

from tilewright.common.text import suggest
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming
from tilewright.sweep.expressions import Expression, SpaceError

CONFIG_FIELDS = tuple(f.name for f in fields(NpuConfig) if f.name != "name")
MEMORY_FIELDS = tuple(f.name for f in fields(MemoryTiming))
#: Axes that are no fields of a machine, an option of the compiler and the clock, with the values they can have.
CHOICES = {"small_weights": (0, 1), "clock_mhz": (1, 10_000)}
_RANGE = {"min", "max", "step", "log2"}
_CONDITION = {"when", "else"}
_MAX_AXIS = 10_000


@dataclass(frozen=True)
class Axis:
    """A field and the values it takes, in order.

    Attributes:
        when: condition over the fields and the axes before it, None for none; where it does not hold, the field has
            the value `otherwise` alone, None for that of the base.
    """

    field: str
    values: tuple[int, ...]
    when: Expression | None = None
    otherwise: int | None = None


def parse_axes(axes: dict[str, Any], memory: dict[str, Any]) -> tuple[list[Axis], list[tuple[str, Expression]]]:
    """Reads the tables `[axes]` and `[memory]` of a space: its axes, and fields that expressions give.

    Raises:
        SpaceError: an unknown field, or anything that is neither values nor an expression over other fields.
    """
    refuse_unknown(axes, (*CONFIG_FIELDS, *CHOICES), "[axes]")
    refuse_unknown(memory, MEMORY_FIELDS, "[memory]")
    given = {name: (value, f"[axes] {name}") for name, value in axes.items()}
    given |= {name: (value, f"[memory] {name}") for name, value in memory.items()}
    names = {*CONFIG_FIELDS, *MEMORY_FIELDS, *(set(CHOICES) & set(axes))}
    derived = {name for name, (value, _) in given.items() if isinstance(value, str)} - set(CHOICES)
    found: list[Axis] = []
    expressions = []
    for name, (value, where) in given.items():
        if name in derived:
            expression = Expression(value, names, where)
            if others := sorted(expression.names & derived):
                raise SpaceError(
                    f"{name} = {expression.text!r} uses {others[0]!r}, which is given by an expression itself"
                )
            expressions.append((name, expression))
        else:  # a condition may use what is settled before its axis
            settled = names - set(given) | {axis.field for axis in found}
            found.append(_axis(name, value, where, settled))
    return found, expressions


def _axis(name: str, value: Any, where: str, settled: Collection[str]) -> Axis:
    when = otherwise = None
    if isinstance(value, dict) and set(value) & _CONDITION:
        if "when" not in value:
            raise SpaceError(f"{where}: else needs when")
        when = Expression(value["when"], settled, f"{where} when")
        otherwise = whole(value["else"], 0, 2**31, f"{where} else") if "else" in value else None
        value = {key: one for key, one in value.items() if key not in _CONDITION}
        if name == "clock_mhz" and otherwise is None:
            raise SpaceError(f"{where}: when needs else, because the base has no clock")
    values = _values(value, where)
    if name in CHOICES:
        for one in (*values, *(() if otherwise is None else (otherwise,))):
            whole(one, *CHOICES[name], where)
    return Axis(name, values, when, otherwise)


def _values(value: Any, where: str) -> tuple[int, ...]:
    if isinstance(value, dict) and set(value) == {"choices"}:
        value = value["choices"]
    if isinstance(value, dict):
        if not {"min", "max"} <= set(value) <= _RANGE or {"step", "log2"} <= set(value):
            forms = "{min, max, step}, {min, max, log2} or {choices}, which may have when and else"
            raise SpaceError(f"{where} must be a list, {forms}, not {value!r}")
        low, high = (whole(value[k], 1, 2**31, f"{where} {k}") for k in ("min", "max"))
        if high < low:
            raise SpaceError(f"{where} max must be at least min ({low}), not {high}")
        if "log2" in value:
            if value["log2"] is not True:
                raise SpaceError(f"{where} log2 must be true, not {value['log2']!r}")
            return tuple(low << n for n in range(32) if low << n <= high)
        step = whole(value.get("step", 1), 1, 2**31, f"{where} step")
        if (high - low) // step >= _MAX_AXIS:
            raise SpaceError(f"{where} has more than {_MAX_AXIS} values")
        return tuple(range(low, high + 1, step))
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list) or not value or any(type(x) is not int for x in value):
        raise SpaceError(f"{where} must be a list of integers, a range or an expression, not {value!r}")
    if len(set(value)) < len(value):
        raise SpaceError(f"{where} has a value twice: {value!r}")
    return tuple(value)


def whole(value: Any, low: int, high: int, where: str) -> int:
    """Returns a whole number from a table. Raises `SpaceError` for anything else, and outside of a range."""
    if type(value) is not int or not low <= value <= high:
        raise SpaceError(f"{where} must be {low}..{high}, not {value!r}")
    return value


def refuse_unknown(table: dict[str, Any], accepted: Iterable[str], where: str) -> None:
    """Raises `SpaceError` for a key that is not accepted."""
    unknown = sorted(set(table) - set(accepted))
    if unknown:
        raise SpaceError(
            f"unknown key {unknown[0]!r} in {where}{suggest(unknown[0], accepted)}; known: {', '.join(accepted)}"
        )
