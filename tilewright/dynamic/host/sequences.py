"""Sequences and optionals: lists of values, and values that may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value, describe


def _items(call: HostNode, value: Value) -> list[Any]:
    if not isinstance(value, list):
        raise call.error(f"needs a sequence, not {describe(value)}")
    return value


def _position(call: HostNode, value: Value, length: int, default: int, last: int = -1) -> int:
    """A position, -length..length+last; negative ones count from the end."""
    at = default if value is None else int(np.asarray(value).reshape(-1)[0])
    if not -length <= at <= length + last:
        raise call.error(f"position {at} is out of range for {length} elements")
    return at + length if at < 0 else at


@host_op("SequenceConstruct")
def construct(call: HostNode, values: list[Value]) -> list[Value]:
    return [list(values)]


@host_op("SequenceEmpty")
def empty(call: HostNode, values: list[Value]) -> list[Value]:
    return [[]]


@host_op("SequenceInsert")
def insert(call: HostNode, values: list[Value]) -> list[Value]:
    items = list(_items(call, values[0]))
    items.insert(_position(call, values[2] if len(values) > 2 else None, len(items), len(items), 0), values[1])
    return [items]


@host_op("SequenceErase")
def erase(call: HostNode, values: list[Value]) -> list[Value]:
    items = list(_items(call, values[0]))
    del items[_position(call, values[1] if len(values) > 1 else None, len(items), -1)]
    return [items]


@host_op("SequenceAt")
def at(call: HostNode, values: list[Value]) -> list[Value]:
    items = _items(call, values[0])
    return [items[_position(call, values[1], len(items), 0)]]


@host_op("SequenceLength")
def length(call: HostNode, values: list[Value]) -> list[Value]:
    return [np.array(len(_items(call, values[0])), np.int64)]


@host_op("SplitToSequence")
def split(call: HostNode, values: list[Value]) -> list[Value]:
    """Splits a tensor along an axis. Without sizes every slice is one element long, and loses the axis with
    keepdims=0."""
    data, axis = np.asarray(values[0]), int(call.attrs.get("axis", 0))
    size = data.shape[axis]
    given = values[1] if len(values) > 1 else None
    if given is None:
        parts = np.split(data, size, axis) if size else []
        return [list(parts) if call.attrs.get("keepdims", 1) else [np.squeeze(p, axis) for p in parts]]
    sizes = np.asarray(given)
    if sizes.ndim == 0:
        if int(sizes) <= 0:
            raise call.error(f"split={int(sizes)} must be greater than 0")
        cuts = list(range(int(sizes), size, int(sizes)))
    else:
        if int(sizes.sum()) != size or int(sizes.min(initial=0)) < 0:
            raise call.error(f"split={sizes.tolist()} does not divide dimension {axis} of {list(data.shape)}")
        cuts = np.cumsum(sizes)[:-1].tolist()
    return [list(np.split(data, cuts, axis))]


@host_op("ConcatFromSequence")
def concat(call: HostNode, values: list[Value]) -> list[Value]:
    items, axis = _items(call, values[0]), int(call.attrs["axis"])
    if not items:
        raise call.error("the sequence is empty")
    try:
        return [np.stack(items, axis) if call.attrs.get("new_axis", 0) else np.concatenate(items, axis)]
    except ValueError as error:
        raise call.error(f"the elements do not fit together: {error}") from None


@host_op("Optional")
def optional(call: HostNode, values: list[Value]) -> list[Value]:
    return [values[0] if values else None]


@host_op("OptionalGetElement")
def optional_get(call: HostNode, values: list[Value]) -> list[Value]:
    if values[0] is None:
        raise call.error("the optional holds nothing")
    return [values[0]]


@host_op("OptionalHasElement")
def optional_has(call: HostNode, values: list[Value]) -> list[Value]:
    return [np.array(bool(values) and values[0] is not None)]
