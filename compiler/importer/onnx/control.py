"""Control flow known at compile time: If takes its branch, Loop and Scan are unrolled."""

from __future__ import annotations

import onnx

from tilewright.compiler.errors import CompileError, StagingError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder, deciding
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

MAX_UNROLLED = 20_000
"""Most nodes that a Loop or Scan may unroll to."""
MAX_UNROLLED_INTEGERS = 45_000
"""Most nodes that one of quantised values may unroll to: 256 steps of a recurrent layer."""
STAGED_UNROLLED = 200
"""Most nodes that a Loop or Scan in floats may unroll to where the host can run the loop instead."""
STAGED_BRANCHES = 16
"""Most nodes in both branches of an If that run in vain, where the host can run the right one instead."""


@handles("If")
def if_(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports the branch of a constant condition; otherwise runs both and selects by Where, if shapes are equal."""
    taken = builder.const(node.input(0))
    if taken is not None:
        body: onnx.GraphProto = node.attrs["then_branch" if bool(taken.reshape(-1)[0]) else "else_branch"]
        for value, name in zip(builder.inline(body, []), node.outputs):
            if name:
                builder.bind(value, name)
        return
    graphs: list[onnx.GraphProto] = [node.attrs[key] for key in ("then_branch", "else_branch")]
    if builder.staged and sum(_size(g) for g in graphs) > STAGED_BRANCHES:
        raise StagingError(f"{node.label}: the condition is known at run time only")
    try:
        branches = [builder.inline(body, []) for body in graphs]
    except StagingError:
        raise
    except CompileError as error:  # a branch that other inputs would take need not fit these
        raise StagingError(
            f"{node.label}: the condition {_with_origin(builder, node.input(0))} is known at run time only, and with "
            f"these shapes a branch cannot be compiled ({error})"
        ) from error
    for yes, no, name in zip(*branches, node.outputs):
        if builder.shape(yes) != builder.shape(no) or builder.tensor(yes).dtype != builder.tensor(no).dtype:
            raise StagingError(
                f"{node.label}: output {name!r} is {list(builder.shape(yes))} or {list(builder.shape(no))}, by a "
                "condition known at run time only; branches of one shape are accepted"
            )
        if name:
            builder.emit("Where", [node.input(0), yes, no], [name])


def _with_origin(builder: OnnxBuilder, name: str) -> str:
    """The name of a value with the model's inputs that decide it, for messages."""
    inputs = deciding(builder.graph, [name], set(builder.graph.inputs))
    return repr(name) + (f" (it follows from {', '.join(map(repr, inputs))})" if inputs else "")


@handles("Loop")
def loop(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Unrolls the loop while the condition is constant. Body: (i, cond, carried...) -> (cond, carried..., scans...)."""
    body: onnx.GraphProto = node.attrs["body"]
    trips = builder.const(node.input(0))
    if node.input(0) and trips is None:
        raise StagingError(f"{node.label}: the trip count {node.input(0)!r} must be a constant at compile time")
    limit = int(trips.reshape(-1)[0]) if trips is not None else MAX_UNROLLED + 1
    carried = list(node.inputs[2:])
    rows: list[list[str]] = [[] for _ in node.outputs[len(carried) :]]
    go = node.input(1) or builder.constant("cond", True)
    step = 0
    while step < limit:
        known = builder.const(go)
        if known is None:
            text = f"{node.label}: the condition {_with_origin(builder, go)} is known at run time only"
            raise StagingError(text, (go,))
        if not known.reshape(-1)[0]:
            break
        _check_size(builder, node, body, step + 1)
        results = builder.inline(body, [builder.constant("i", step, "int64"), go, *carried])
        go, carried = results[0], results[1 : 1 + len(carried)]
        for row, value in zip(rows, results[1 + len(carried) :]):
            row.append(value)
        step += 1
    for value, name in zip(carried, node.outputs):
        if name:
            builder.bind(value, name)
    for row, name in zip(rows, node.outputs[len(carried) :]):
        if name:
            _stack(builder, node, row, name, 0)


@handles("Scan")
def scan(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Unrolls the scan over the scanned axis. Body: (states..., slices...) -> (states..., slices...)."""
    if node.version < 9:
        _batched_scan(builder, node)
        return
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
    length = _length(builder, node, [builder.shape(s)[a] for s, a in zip(scanned, axes_in)])
    _check_size(builder, node, body, length)
    states, rows = _steps(builder, body, states, scanned, axes_in, back_in, length)
    for value, name in zip(states, node.outputs):
        if name:
            builder.bind(value, name)
    for row, name, axis, back in zip(rows, node.outputs[first:], axes_out, back_out):
        if name:
            _stack(builder, node, row[::-1] if back else row, name, axis)


def _batched_scan(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports a Scan of opset 8: everything has a leading batch axis, sequences own lengths; axis 1 is scanned."""
    body: onnx.GraphProto = node.attrs["body"]
    count = int(node.attrs["num_scan_inputs"])
    first = len(node.inputs) - 1 - count
    states, scanned = list(node.inputs[1 : 1 + first]), node.inputs[1 + first :]
    back = node.attrs.get("directions") or [0] * count
    batch = builder.shape((states + scanned)[0])[0]
    whole = _length(builder, node, [builder.shape(s)[1] for s in scanned])
    lengths = [whole] * batch
    if node.input(0):
        lengths = [int(n) for n in builder.need_const(node.input(0), "sequence_lens").reshape(-1)]
        if len(lengths) != batch or not all(0 < n <= whole for n in lengths):
            raise CompileError(f"{node.label}: sequence_lens={lengths} must be {batch} lengths of 1 to {whole}")
    _check_size(builder, node, body, sum(lengths))
    results: list[list[str]] = [[] for _ in node.outputs]
    for index, length in enumerate(lengths):
        at = builder.constant("b", index, "int64")
        pick = lambda name, at=at: builder.emit("Gather", [name, at], attrs={"axis": 0})
        own = [pick(name) for name in scanned]
        ends, rows = _steps(builder, body, [pick(s) for s in states], own, [0] * count, back, length)
        for k, value in enumerate(ends):
            results[k].append(value)
        for k, row in enumerate(rows):
            stacked = builder.fresh(node.output(first + k))
            _stack(builder, node, row, stacked, 0)
            if length < whole:
                pads = [0] * (2 * len(builder.shape(stacked)))
                pads[len(pads) // 2] = whole - length
                zero = builder.constant("zero", 0, builder.tensor(stacked).dtype)
                stacked = builder.emit("Pad", [stacked, builder.ints("pads", pads), zero])
            results[first + k].append(stacked)
    for row, name in zip(results, node.outputs):
        if name:
            _stack(builder, node, row, name, 0)


def _length(builder: OnnxBuilder, node: OnnxNode, sizes: list[int]) -> int:
    if len(set(sizes)) != 1:
        raise CompileError(f"{node.label}: the scanned inputs differ in length: {sorted(set(sizes))}")
    return sizes[0]


def _steps(
    builder: OnnxBuilder,
    body: onnx.GraphProto,
    states: list[str],
    scanned: list[str],
    axes: list[int],
    back: list[int],
    length: int,
) -> tuple[list[str], list[list[str]]]:
    """Unrolls the steps; returns the last states, and per scan output its slices in the order they are made."""
    rows: list[list[str]] = [[] for _ in range(len(body.output) - len(states))]
    for step in range(length):
        slices = []
        for name, axis, reverse in zip(scanned, axes, back):
            index = builder.constant("i", length - 1 - step if reverse else step, "int64")
            slices.append(builder.emit("Gather", [name, index], attrs={"axis": axis}))
        results = builder.inline(body, [*states, *slices])
        for row, value in zip(rows, results[len(states) :]):
            row.append(value)
        states = results[: len(states)]
    return states, rows


def _size(body: onnx.GraphProto) -> int:
    """Nodes of a subgraph; one of another dialect's operations says how many they are."""
    return sum(next((int(a.i) for a in node.attribute if a.name == "operations"), 1) for node in body.node)


def _check_size(builder: OnnxBuilder, node: OnnxNode, body: onnx.GraphProto, steps: int) -> None:
    # the NPU's, if they are written out
    integers = any(x.op_type == "QuantizeLinear" or any(a.name == "quantised" for a in x.attribute) for x in body.node)
    limit = MAX_UNROLLED_INTEGERS if integers else STAGED_UNROLLED if builder.staged else MAX_UNROLLED
    if steps * max(_size(body), 1) > limit:
        raise StagingError(f"{node.label}: unrolls to more than {limit} nodes; shorter loops are accepted")


def _stack(builder: OnnxBuilder, node: OnnxNode, row: list[str], name: str, axis: int) -> None:
    if not row:
        raise StagingError(f"{node.label}: output {name!r} collects no iterations; at least one is needed")
    rank = len(builder.shape(row[0])) + 1
    axis %= rank
    parts = [builder.emit("Unsqueeze", [value, builder.ints("axes", [axis])]) for value in row]
    builder.emit("Concat", parts, [name], {"axis": axis})
