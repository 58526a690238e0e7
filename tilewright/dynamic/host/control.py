"""Control flow by run-time values: bodies are run as dynamic models of their own, compiled once per shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dynamic.host.operators import HostNode, host_op
from tilewright.dynamic.values import Value


def _truth(value: Value) -> bool:
    return bool(np.asarray(value).reshape(-1)[0])


@host_op("If")
def if_(call: HostNode, values: list[Value]) -> list[Value]:
    return call.body(call.attrs["then_branch" if _truth(values[0]) else "else_branch"], [])


@host_op("Loop")
def loop(call: HostNode, values: list[Value]) -> list[Value]:
    """Runs a Loop. Its body maps (i, cond, carried...) to (cond, carried..., scanned...). Without a trip count the
    condition ends it."""
    body = call.attrs["body"]
    limit = None if values[0] is None else int(np.asarray(values[0]).reshape(-1)[0])
    go = values[1] is None or _truth(values[1])
    carried = list(values[2:])
    rows: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
    step = 0
    while go and (limit is None or step < limit):
        results = call.body(body, [np.array(step, np.int64), np.array(go), *carried])
        go, carried = _truth(results[0]), results[1 : 1 + len(carried)]
        for row, value in zip(rows, results[1 + len(carried) :]):
            row.append(value)
        step += 1
    return [*carried, *(_stack(call, row, k, body, 0) for k, row in enumerate(rows, 1 + len(carried)))]


@host_op("Scan")
def scan(call: HostNode, values: list[Value]) -> list[Value]:
    """Runs a Scan. Its body maps (states..., slices...) to (states..., slices...)."""
    if call.version < 9:
        return _batched_scan(call, values)
    body, attrs = call.attrs["body"], call.attrs
    count = int(attrs["num_scan_inputs"])
    first = len(values) - count
    outputs = len(body.output) - first
    axes = attrs.get("scan_input_axes") or [0] * count
    back = attrs.get("scan_input_directions") or [0] * count
    scanned = [np.moveaxis(np.asarray(v), a, 0) for v, a in zip(values[first:], axes)]
    states, rows = _steps(call, list(values[:first]), scanned, back, _length(call, [len(s) for s in scanned]))
    axes_out = attrs.get("scan_output_axes") or [0] * outputs
    back_out = attrs.get("scan_output_directions") or [0] * outputs
    stacked = [
        _stack(call, row[::-1] if reverse else row, k, body, axis)
        for k, (row, axis, reverse) in enumerate(zip(rows, axes_out, back_out), first)
    ]
    return [*states, *stacked]


def _batched_scan(call: HostNode, values: list[Value]) -> list[Value]:
    """Runs a Scan of opset 8: a batch axis in front of everything, axis 1 scanned, each sequence with its own
    length."""
    body = call.attrs["body"]
    count = int(call.attrs["num_scan_inputs"])
    arrays = [np.asarray(v) for v in values[1:]]
    first = len(arrays) - count
    whole = _length(call, [a.shape[1] for a in arrays[first:]])
    batch = arrays[0].shape[0]
    lengths = [whole] * batch
    if values[0] is not None:
        lengths = np.asarray(values[0]).reshape(-1).tolist()
        if len(lengths) != batch or not all(0 < n <= whole for n in lengths):
            raise call.error(f"sequence_lens={lengths} must be {batch} lengths of 1 to {whole}")
    back = call.attrs.get("directions") or [0] * count
    results: list[list[Any]] = [[] for _ in body.output]
    for index, length in enumerate(lengths):
        own = [a[index] for a in arrays]
        states, rows = _steps(call, own[:first], [s[:length] for s in own[first:]], back, length)
        for k, state in enumerate(states):
            results[k].append(state)
        for k, row in enumerate(rows, first):
            made = np.asarray(_stack(call, row, k, body, 0))
            padding = [(0, whole - length)] + [(0, 0)] * (made.ndim - 1)
            results[k].append(np.pad(made, padding))
    return [np.stack(row) for row in results]


def _length(call: HostNode, sizes: list[int]) -> int:
    if len(set(sizes)) != 1:
        raise call.error(f"the scanned inputs differ in length: {sorted(set(sizes))}")
    return sizes[0]


def _steps(
    call: HostNode, states: list[Any], scanned: list[np.ndarray], back: list[int], length: int
) -> tuple[list[Value], list[list[Value]]]:
    body = call.attrs["body"]
    rows: list[list[Value]] = [[] for _ in body.output[len(states) :]]
    for step in range(length):
        slices = [np.ascontiguousarray(s[length - 1 - step if reverse else step]) for s, reverse in zip(scanned, back)]
        results = call.body(body, [*states, *slices])
        for row, value in zip(rows, results[len(states) :]):
            row.append(value)
        states = results[: len(states)]
    return states, rows


def _stack(call: HostNode, row: list[Any], index: int, body: Any, axis: int) -> Value:
    """Joins slices along a new axis; without any, returns an empty tensor of the shape that the body declares."""
    if row:
        return np.stack(row, axis)
    from onnx import helper

    tensor = body.output[index].type.tensor_type
    sizes = [d.dim_value for d in tensor.shape.dim]
    if (
        not tensor.elem_type
        or not tensor.HasField("shape")
        or not all(d.HasField("dim_value") for d in tensor.shape.dim)
    ):
        sizes = [0] * len(sizes)
    sizes.insert(axis % (len(sizes) + 1), 0)
    return np.zeros(sizes, helper.tensor_dtype_to_np_dtype(tensor.elem_type or 1))


@host_op("SequenceMap")
def sequence_map(call: HostNode, values: list[Value]) -> list[Value]:
    """Runs the body for every element of the first sequence; tensors are given to every run."""
    steps = len(values[0] or [])
    body = call.attrs["body"]
    results = [call.body(body, [v[k] if isinstance(v, list) else v for v in values]) for k in range(steps)]
    return [[row[k] for row in results] for k in range(len(body.output))]
