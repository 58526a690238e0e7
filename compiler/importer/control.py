"""Control flow known at compile time: If takes its branch, Loop and Scan are unrolled."""

from __future__ import annotations

import onnx

from compiler.errors import CompileError, UnsupportedError
from compiler.importer.builder import Builder
from compiler.importer.registry import OnnxNode, handles

MAX_UNROLLED = 20_000
"""Nodes a Loop or Scan may unroll to."""


@handles("If")
def if_(builder: Builder, node: OnnxNode) -> None:
    """A constant condition takes its branch; otherwise both run and Where chooses, if the results have one shape."""
    taken = builder.const(node.input(0))
    if taken is not None:
        body: onnx.GraphProto = node.attrs["then_branch" if bool(taken.reshape(-1)[0]) else "else_branch"]
        for value, name in zip(builder.inline(body, []), node.outputs):
            if name:
                builder.emit("Identity", [value], [name])
        return
    branches = [builder.inline(node.attrs[key], []) for key in ("then_branch", "else_branch")]
    for yes, no, name in zip(*branches, node.outputs):
        if builder.shape(yes) != builder.shape(no) or builder.tensor(yes).dtype != builder.tensor(no).dtype:
            raise UnsupportedError(
                f"{node.label}: output {name!r} is {list(builder.shape(yes))} or {list(builder.shape(no))}, by a "
                "condition known at run time only; branches of one shape are accepted"
            )
        if name:
            builder.emit("Where", [node.input(0), yes, no], [name])


@handles("Loop")
def loop(builder: Builder, node: OnnxNode) -> None:
    """Unrolled while the condition is a constant. Body: (i, cond, carried...) -> (cond, carried..., scanned...)."""
    body: onnx.GraphProto = node.attrs["body"]
    trips = builder.const(node.input(0))
    if node.input(0) and trips is None:
        raise UnsupportedError(f"{node.label}: the trip count {node.input(0)!r} must be a constant at compile time")
    limit = int(trips.reshape(-1)[0]) if trips is not None else MAX_UNROLLED + 1
    carried = list(node.inputs[2:])
    rows: list[list[str]] = [[] for _ in node.outputs[len(carried) :]]
    go = node.input(1) or builder.constant("cond", True)
    step = 0
    while step < limit and bool(builder.need_const(go, "the loop condition").reshape(-1)[0]):
        _check_size(node, body, step + 1)
        results = builder.inline(body, [builder.constant("i", step, "int64"), go, *carried])
        go, carried = results[0], results[1 : 1 + len(carried)]
        for row, value in zip(rows, results[1 + len(carried) :]):
            row.append(value)
        step += 1
    for value, name in zip(carried, node.outputs):
        if name:
            builder.emit("Identity", [value], [name])
    for row, name in zip(rows, node.outputs[len(carried) :]):
        if name:
            _stack(builder, node, row, name, 0)


@handles("Scan")
def scan(builder: Builder, node: OnnxNode) -> None:
    """Unrolled over the scanned axis. Body: (states..., slices...) -> (states..., slices...)."""
    if node.version < 9:
        raise UnsupportedError(f"{node.label}: Scan of opset 8 is not supported; opset 9 or later is accepted")
    body: onnx.GraphProto = node.attrs["body"]
    count = int(node.attrs["num_scan_inputs"])
    first = len(node.inputs) - count
    states, scanned = list(node.inputs[:first]), node.inputs[first:]
    outputs = len(node.outputs) - first
    axes_in = node.attrs.get("scan_input_axes") or [0] * count
    axes_out = node.attrs.get("scan_output_axes") or [0] * outputs
    back_in = node.attrs.get("scan_input_directions") or [0] * count
    back_out = node.attrs.get("scan_output_directions") or [0] * outputs
    axes_in = [a % len(builder.shape(s)) for a, s in zip(axes_in, scanned)]
    steps = {builder.shape(s)[a] for s, a in zip(scanned, axes_in)}
    if len(steps) != 1:
        raise CompileError(f"{node.label}: the scanned inputs differ in length: {sorted(steps)}")
    (length,) = steps
    _check_size(node, body, length)
    rows: list[list[str]] = [[] for _ in range(outputs)]
    for step in range(length):
        slices = []
        for name, axis, back in zip(scanned, axes_in, back_in):
            index = builder.constant("i", length - 1 - step if back else step, "int64")
            slices.append(builder.emit("Gather", [name, index], attrs={"axis": axis}))
        results = builder.inline(body, [*states, *slices])
        states = results[:first]
        for row, value in zip(rows, results[first:]):
            row.append(value)
    for value, name in zip(states, node.outputs):
        if name:
            builder.emit("Identity", [value], [name])
    for row, name, axis, back in zip(rows, node.outputs[first:], axes_out, back_out):
        if name:
            _stack(builder, node, row[::-1] if back else row, name, axis)


def _check_size(node: OnnxNode, body: onnx.GraphProto, steps: int) -> None:
    if steps * max(len(body.node), 1) > MAX_UNROLLED:
        raise UnsupportedError(f"{node.label}: unrolls to more than {MAX_UNROLLED} nodes; shorter loops are accepted")


def _stack(builder: Builder, node: OnnxNode, row: list[str], name: str, axis: int) -> None:
    if not row:
        raise UnsupportedError(f"{node.label}: output {name!r} collects no iterations; at least one is needed")
    rank = len(builder.shape(row[0])) + 1
    axis %= rank
    parts = [builder.emit("Unsqueeze", [value, builder.ints("axes", [axis])]) for value in row]
    builder.emit("Concat", parts, [name], {"axis": axis})
