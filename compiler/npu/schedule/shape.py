"""Shapes of layers: equal for layers that differ only in weights and names, and so take the same cycles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.layers.layer import Layer, Post

#: Fields that name things or count work; they do not change what is emitted.
_NAMES = {"name", "op", "tile", "source", "tensor", "macs"}
#: Fields that name buffers: those of `DynamicWeights` may be None.
BUFFERS = ("buffer", "extra_reads", "tiles", "params")


def shape_of(
    layers: Iterable[Layer],
    outside: Collection[str] = (),
    numbers: dict[Any, int] | None = None,
    values: bool = True,
    zeros: bool = True,
) -> tuple[list[Any], Callable[[str], int]]:
    """Returns the shape of layers as plain values, with numbers for buffers, and the function that numbers a buffer.

    Args:
        layers: the layers.
        outside: buffers that are read outside the step.
        numbers: numbers of names, to be filled; None for none so far.
        values: True if values of registers are part of the shape. Otherwise they have numbers, too: the instructions
            that set them depend only on which are equal, and which are 0.
        zeros: True if those that are 0, and tables that are missing, are told from others.
    """
    found: dict[Any, int] = {} if numbers is None else numbers

    def number(name: Any) -> int:
        return found.setdefault(name, len(found))

    def plain(value: Any, key: str = "") -> Any:
        if key == "buffer" or key == "extra_reads":
            names = value if isinstance(value, list) else [value]
            return [(number(name), name in outside) for name in names]
        if not values:
            if isinstance(value, Post):
                add = value.add
                summed = None if add is None else [plain(add.other), number(tuple(add.constants.items()))]
                return [number(value.fields), value.rounding, summed, *([plain(value.lut)] if zeros else [])]
            if key in ("fill", "epsilon") or isinstance(value, np.floating):
                plainly = value.item() if isinstance(value, np.floating) else value
                return number((key, plainly)) if value or not zeros else 0.0
        if key in BUFFERS and isinstance(value, str):
            return number(value)
        struct = isinstance(value, Struct)
        if struct or is_dataclass(value):
            own: Sequence[str] = value.__struct_fields__ if struct else [f.name for f in fields(value)]
            # Whether weights are packed is told only where they are, so that other shapes stay what they were.
            kept = [name for name in own if name not in _NAMES and (name != "packed" or value.packed)]
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


def together(shapes: dict[int, LayerShape], layers: Iterable[Layer]) -> tuple[Hashable, dict[Any, int]]:
    """Returns a key that is equal for sequences of layers of equal shapes that read each other's buffers alike.

    Args:
        shapes: shapes known so far, by `id` of the layer; those of `layers` are added.

    Returns:
        (the key, the numbers that it has for buffers).
    """
    numbers: dict[Any, int] = {}
    found = []
    for layer in layers:
        shape = shapes.get(id(layer))
        if shape is None:
            shape = shapes[id(layer)] = LayerShape.of(layer)
        found.append((shape.text, *(numbers.setdefault(name, len(numbers)) for name in shape.names)))
    return tuple(found), numbers


class LayerShape(Struct, frozen=True):
    """The shape of one layer.

    Attributes:
        layer: the layer.
        text: equal for layers of equal shape.
        names: names of buffers, and tables, that `text` has numbers for, in their order.
    """

    layer: Layer
    text: str
    names: tuple[Any, ...]

    @staticmethod
    def of(layer: Layer, zeros: bool = True) -> LayerShape:
        """Returns the shape of a layer; `zeros` as for `shape_of`."""
        numbers: dict[Any, int] = {}
        plain, _ = shape_of([layer], numbers=numbers, values=False, zeros=zeros)
        return LayerShape(layer, repr(plain), tuple(numbers))
