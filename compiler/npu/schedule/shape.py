"""Shapes of layers: what is equal for layers that differ in weights and names only, and so take the same cycles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tilewright.compiler.npu.layers.layer import Layer

#: Fields that name things or count work; they do not change what is emitted.
_NAMES = {"name", "op", "tile", "source", "tensor", "macs"}


def shape_of(layers: Iterable[Layer], outside: Collection[str] = ()) -> tuple[list[Any], Callable[[str], int]]:
    """The shape of layers as plain values, in which every buffer is a number; and what gives the number of a buffer.

    Args:
        outside: buffers that others read.
    """
    numbers: dict[Any, int] = {}

    def number(name: Any) -> int:
        return numbers.setdefault(name, len(numbers))

    def plain(value: Any, key: str = "") -> Any:
        if key == "buffer" or key == "extra_reads":
            names = value if isinstance(value, list) else [value]
            return [(number(name), name in outside) for name in names]
        if key in ("tiles", "params") and isinstance(value, str):  # of `DynamicWeights`: buffers
            return number(value)
        if is_dataclass(value):
            kept = [f.name for f in fields(value) if f.name not in _NAMES]
            return [type(value).__name__, *(plain(getattr(value, name), name) for name in kept)]
        if isinstance(value, np.ndarray):
            return [value.shape, value.dtype.str]
        if isinstance(value, bytes):
            return number(value)
        if isinstance(value, Mapping):
            return sorted((k, plain(v)) for k, v in value.items())
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return value.item() if isinstance(value, np.generic) else value

    return [plain(layer) for layer in layers], number
