"""Makes dataclasses of untrusted JSON values: every field is checked against its annotation."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], values: Any, where: str) -> T:
    """An instance of the dataclass `kind`; fields that are dataclasses, enums or tuples themselves are made, too.

    Args:
        values: result of `json.loads`.
        where: names the value in messages.

    Raises:
        ValueError: a field is missing, unknown or of another type. One line.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be a table, not {_short(values)}")
    hints = _hints(kind)  # type: ignore[arg-type]
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ValueError(f"{where} has an unknown field {_short(unknown[0])}")
    given = {name: convert(hints[name], value, f"{where}.{name}") for name, value in values.items()}
    for name, f in known.items():
        if name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{where} lacks the field {name!r}")
    return kind(**given)


def convert(kind: Any, value: Any, where: str) -> Any:
    """Converts a JSON value to `kind`, an annotation. Raises `ValueError`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        others = [one for one in arguments if one is not types.NoneType]
        if value is None and len(others) < len(arguments):
            return None
        if len(others) == 1:
            return convert(others[0], value, where)
        for one in others:
            with contextlib.suppress(ValueError):
                return convert(one, value, where)
        names = " or ".join(_called(one) for one in others)
        raise ValueError(f"{where} must be {names}, not {_short(value)}")
    if origin in (list, tuple):
        if isinstance(value, list | tuple):
            if origin is tuple and arguments[-1] is not ...:
                if len(value) != len(arguments):
                    raise ValueError(f"{where} must have {len(arguments)} elements, not {len(value)}")
                return tuple(convert(one, v, f"{where}[{i}]") for i, (one, v) in enumerate(zip(arguments, value)))
            return origin(convert(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    elif origin is dict:
        if isinstance(value, dict):
            return {
                convert(arguments[0], k, f"a key of {where}"): convert(arguments[1], v, f"{where}[{_short(k)}]")
                for k, v in value.items()
            }
    elif kind is Any:
        return value
    elif hasattr(kind, "__dataclass_fields__"):
        return from_json(kind, value, where)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if isinstance(value, str) and value in {str(member.value) for member in kind}:
            return kind(value)
        raise ValueError(f"{where} must be one of {', '.join(str(m.value) for m in kind)}, not {_short(value)}")
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if isinstance(value, float) else value
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ValueError(f"{where} must be {_called(kind)}, not {_short(value)}")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _called(kind: Any) -> str:
    names = {int: "an integer", str: "a text", float: "a number", bool: "true or false"}
    return names.get(kind, "a list" if get_origin(kind) in (list, tuple) else "a table")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
