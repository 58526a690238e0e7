"""Ops that move elements: for tensors of strings, and in loops where their parameters change at every step."""

from __future__ import annotations

import numpy as np

from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value

#: Ops whose shape parameters may be run-time values; on the host they need no program per value.
BY_VALUE = {"ConstantOfShape", "Expand", "Range", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Unsqueeze"}


def _ints(call: HostNode, values: list[Value], index: int, name: str) -> list[int] | None:
    """A parameter that is an attribute in old opsets and an input in new ones."""
    if name in call.attrs:
        return [int(v) for v in call.attrs[name]]
    if index < len(values) and values[index] is not None:
        return [int(v) for v in np.asarray(values[index]).reshape(-1)]
    return None


def _array(call: HostNode, values: list[Value], index: int = 0) -> np.ndarray:
    value = values[index]
    if not isinstance(value, np.ndarray):
        raise call.error("takes tensors, not sequences or missing values")
    return value


@host_op(
    "Compress", "Concat", "ConstantOfShape", "Equal", "Expand", "Flatten", "Gather", "RegexFullMatch", "Shape", "Size",
    "Squeeze", "StringConcat", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
def by_reference(call: HostNode, values: list[Value]) -> list[Value]:
    """Runs ops whose reference implementation is exact and refuses what does not fit.

    That of the others here is not: of Slice, Split and Tile it takes parameters that do not fit, of GatherElements up
    to 64 elements along the axis, of Unique no tensor without `axis`, and Range adds in another order. Reshape takes a
    quarter of the time here, which loops notice.
    """
    if any(isinstance(value, list) for value in values):
        raise call.error("takes tensors, not sequences")
    return list(call.evaluate(values))  # type: ignore[arg-type]


@host_op("Identity")
def identity(call: HostNode, values: list[Value]) -> list[Value]:
    return [values[0]]


@host_op("Reshape")
def reshape(call: HostNode, values: list[Value]) -> list[Value]:
    data, target = _array(call, values), _ints(call, values, 1, "shape") or []
    if not call.attrs.get("allowzero"):
        if any(v == 0 and i >= data.ndim for i, v in enumerate(target)):
            raise call.error(f"target {target} copies a dimension that {list(data.shape)} does not have")
        target = [data.shape[i] if v == 0 else v for i, v in enumerate(target)]
    try:
        return [data.reshape(target)]
    except ValueError:
        raise call.error(f"{list(data.shape)} does not fit the target shape {target}") from None


@host_op("Slice")
def slice_(call: HostNode, values: list[Value]) -> list[Value]:
    data = _array(call, values)
    starts, ends = _ints(call, values, 1, "starts") or [], _ints(call, values, 2, "ends") or []
    axes = _ints(call, values, 3, "axes")
    axes = list(range(len(starts))) if axes is None else axes
    steps = _ints(call, values, 4, "steps") or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise call.error(f"starts={starts}, ends={ends}, axes={axes}, steps={steps} differ in length")
    if 0 in steps or any(not -data.ndim <= a < data.ndim for a in axes):
        raise call.error(f"axes={axes}, steps={steps} do not fit {list(data.shape)}")
    where = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        first, last, _ = slice(start, end, step).indices(data.shape[axis])
        where[axis] = slice(first, last if last >= 0 else None, step)
    return [data[tuple(where)]]


@host_op("Split")
def split(call: HostNode, values: list[Value]) -> list[Value]:
    data, axis = _array(call, values), int(call.attrs.get("axis", 0))
    sizes, size, parts = _ints(call, values, 1, "split"), data.shape[axis], len(call.outputs)
    if sizes is None:
        chunk = -(-size // parts)
        sizes = [max(min(chunk, size - k * chunk), 0) for k in range(parts)]
    if sum(sizes) != size or len(sizes) != parts or min(sizes) < 0:
        raise call.error(f"split={sizes} does not divide dimension {axis} of {list(data.shape)}")
    return list(np.split(data, np.cumsum(sizes)[:-1].tolist(), axis))


@host_op("Tile")
def tile(call: HostNode, values: list[Value]) -> list[Value]:
    data, repeats = _array(call, values), _ints(call, values, 1, "repeats") or []
    if len(repeats) != data.ndim or min(repeats, default=0) < 0:
        raise call.error(f"repeats={repeats} must be {data.ndim} counts")
    return [np.tile(data, repeats)]


@host_op("Range")
def range_(call: HostNode, values: list[Value]) -> list[Value]:
    start, limit, delta = (np.asarray(v).reshape(-1)[0] for v in values)
    if not delta:
        raise call.error("delta must not be 0")
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    return [(start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype)]


@host_op("GatherElements")
def gather_elements(call: HostNode, values: list[Value]) -> list[Value]:
    data, axis = _array(call, values), int(call.attrs.get("axis", 0))
    at, size = _array(call, values, 1), data.shape[axis]
    if at.size and not (-size <= at.min() and at.max() < size):
        raise call.error(f"index {at.min() if at.min() < -size else at.max()} is out of range for {size} elements")
    return [np.take_along_axis(data, np.where(at < 0, at + size, at), axis)]


@host_op("Unique")
def unique(call: HostNode, values: list[Value]) -> list[Value]:
    """Returns unique values, their first positions, the position of each element among them, and their counts."""
    data, axis = _array(call, values), call.attrs.get("axis")
    data, axis = (data.reshape(-1), 0) if axis is None else (data, int(axis))
    if data.dtype == np.object_:
        data = data.astype(np.str_)
    found, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    if not call.attrs.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        found, first, counts = np.take(found, order, axis), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse.reshape(-1)]
    found = found.astype(np.object_) if found.dtype.kind == "U" else found
    return [found, *(a.reshape(-1).astype(np.int64) for a in (first, inverse, counts))]
