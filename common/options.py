"""Keyword arguments of a function as the fields of one dataclass, so that they are named once."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.common.text import suggest

Options = TypeVar("Options")
Function = TypeVar("Function", bound=Callable[..., Any])


def collect(kind: type[Options], given: Mapping[str, Any], function: str, base: Options | None = None) -> Options:
    """The options of a call.

    Args:
        kind: a dataclass.
        given: keyword arguments of the call.
        function: name of the function, for the error.
        base: options that the arguments change; by default those of the dataclass.

    Raises:
        TypeError: an argument that is no field.
    """
    known = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{suggest(name, known)}")
    return kind(**given) if base is None else dataclasses.replace(base, **given)  # type: ignore[type-var]


def keywords(kind: type) -> Callable[[Function], Function]:
    """Decorates a function that hands its `**options` to `collect`: its signature, as `help` shows it, has the fields
    of the dataclass as keyword arguments."""

    def wrap(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = {p.name for p in own}
        added = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in dataclasses.fields(kind)
            if field.init and field.name not in named
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return function

    return wrap
