"""Ops that move or select elements: Reshape, Pad, Slice, Split, Squeeze, Resize and relatives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.importer.onnx.reduction import normal_axes


@handles("Reshape")
def reshape(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Reshape: the target becomes a constant without 0 (copy) and -1 (the remaining size)."""
    data = builder.shape(node.input(0))
    shape = node.attrs.get("shape")
    given = np.asarray(shape) if shape is not None else builder.need_const(node.input(1), "the target shape")
    target = [int(v) for v in given.reshape(-1)]
    if not node.attrs.get("allowzero"):
        for i, v in enumerate(target):
            if v == 0 and i >= len(data):
                raise CompileError(
                    f"{node.label}: target {target} copies dimension {i}, which {list(data)} does not have"
                )
        target = [data[i] if v == 0 else v for i, v in enumerate(target)]
    size = math.prod(data)
    if target.count(-1) == 1:
        rest = -math.prod(target)
        if rest == 0 or size % rest:
            raise CompileError(f"{node.label}: {list(data)} does not fit the target shape {target}")
        target[target.index(-1)] = size // rest
    if min(target, default=0) < 0 or math.prod(target) != size:
        raise CompileError(f"{node.label}: {list(data)} does not fit the target shape {target}")
    builder.reshaped(node.input(0), target, node.outputs)


@handles("Squeeze")
def squeeze(builder: OnnxBuilder, node: OnnxNode) -> None:
    shape = builder.shape(node.input(0))
    axes = _axes(builder, node, 1)
    axes = [i for i, d in enumerate(shape) if d == 1] if axes is None else normal_axes(node, axes, len(shape))
    builder.emit("Squeeze", [node.input(0), builder.ints("axes", axes)], node.outputs)


@handles("Unsqueeze")
def unsqueeze(builder: OnnxBuilder, node: OnnxNode) -> None:
    axes = _axes(builder, node, 1)
    if axes is None:
        raise CompileError(f"{node.label}: axes are missing")
    axes = normal_axes(node, axes, len(builder.shape(node.input(0))) + len(axes))
    builder.emit("Unsqueeze", [node.input(0), builder.ints("axes", axes)], node.outputs)


def _axes(builder: OnnxBuilder, node: OnnxNode, index: int) -> list[int] | None:
    if "axes" in node.attrs:
        return [int(a) for a in node.attrs["axes"]]
    if not node.input(index):
        return None
    return [int(a) for a in builder.need_const(node.input(index), "axes").reshape(-1)]


@handles("Pad")
def pad(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Pad: pads for every axis, as a constant; the value as an input of the data's type."""
    data = node.input(0)
    rank, dtype = len(builder.shape(data)), builder.tensor(data).dtype
    mode = node.attrs.get("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise UnsupportedError(f"{node.label}: mode={mode!r} is not supported; accepted: constant, reflect, edge, wrap")
    if node.version < 11:
        pads = [int(v) for v in node.attrs.get("pads", node.attrs.get("paddings", []))]
        value = builder.constant("value", node.attrs.get("value", 0.0), dtype)
    else:
        pads = [int(v) for v in builder.need_const(node.input(1), "pads").reshape(-1)]
        value = node.input(2) or builder.constant("value", 0, dtype)
    if node.input(3) and node.version >= 11:
        axes = [int(a) % rank for a in builder.need_const(node.input(3), "axes").reshape(-1)]
        if len(pads) != 2 * len(axes):
            raise CompileError(f"{node.label}: pads={pads} must have {2 * len(axes)} values for axes {axes}")
        full = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            full[axis], full[rank + axis] = pads[i], pads[len(axes) + i]
        pads = full
    if len(pads) != 2 * rank:
        raise CompileError(f"{node.label}: pads={pads} must have {2 * rank} values for a tensor of rank {rank}")
    builder.emit("Pad", [data, builder.ints("pads", pads), value], node.outputs, {"mode": mode})


@handles("Slice")
def slice_(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Slice: constant starts, ends, axes and steps, all present; bounds clamped to the tensor."""
    shape = builder.shape(node.input(0))
    if node.version < 10:
        starts, ends = list(node.attrs.get("starts", [])), list(node.attrs.get("ends", []))
        axes = list(node.attrs.get("axes", range(len(starts))))
        steps = [1] * len(starts)
    else:
        names = ("starts", "ends", "axes", "steps")
        found = [
            [int(v) for v in builder.need_const(node.input(i + 1), what).reshape(-1)] if node.input(i + 1) else None
            for i, what in enumerate(names)
        ]
        starts, ends = found[0] or [], found[1] or []
        axes = found[2] if found[2] is not None else list(range(len(starts)))
        steps = found[3] if found[3] is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise CompileError(f"{node.label}: starts={starts}, ends={ends}, axes={axes}, steps={steps} differ in length")
    if 0 in steps:
        raise CompileError(f"{node.label}: steps={steps} must not be zero")
    if all(part == (0, np.iinfo(np.int64).max, 1) for part in zip(starts, ends, steps)):
        builder.bind(node.input(0), node.output(0))  # written so, onnxruntime removes it first
        return
    bounds = []
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if not -len(shape) <= axis < len(shape):
            raise CompileError(f"{node.label}: axis {axis} is out of range for {list(shape)}")
        axis %= len(shape)
        first, last, _ = slice(start, end, step).indices(shape[axis])
        # A backward slice to the very beginning ends "before 0"; ONNX writes that as any large negative number.
        bounds.append((first, last if last >= 0 else -shape[axis] - 1, axis, step))
    bounds.sort(key=lambda b: b[2])
    columns = [[b[i] for b in bounds] for i in range(4)]
    inputs = [builder.ints(what, v) for what, v in zip(("starts", "ends", "axes", "steps"), columns)]
    builder.emit("Slice", [node.input(0), *inputs], node.outputs)


@handles("Split")
def split(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Split: sizes as a constant input, always present; axis non-negative."""
    shape = builder.shape(node.input(0))
    axis = normal_axes(node, [int(node.attrs.get("axis", 0))], len(shape))[0]
    size, parts = shape[axis], int(node.attrs.get("num_outputs", len(node.outputs)))
    if "split" in node.attrs:
        sizes = [int(v) for v in node.attrs["split"]]
    elif node.input(1):
        sizes = [int(v) for v in builder.need_const(node.input(1), "split").reshape(-1)]
    else:
        chunk = -(-size // parts)
        sizes = [max(min(chunk, size - i * chunk), 0) for i in range(parts)]
    if sum(sizes) != size or len(sizes) != len(node.outputs) or min(sizes, default=0) < 0:
        raise CompileError(f"{node.label}: split={sizes} does not divide dimension {axis} of {list(shape)}")
    inputs = [node.input(0), builder.ints("split", sizes)]
    builder.emit("Split", inputs, node.outputs, {"axis": axis, "num_outputs": None})


@handles("Concat")
def concat(builder: OnnxBuilder, node: OnnxNode) -> None:
    rank = len(builder.shape(node.input(0)))
    axis = normal_axes(node, [int(node.attrs.get("axis", 1))], rank)[0]
    builder.emit("Concat", node.inputs, node.outputs, {"axis": axis})


@handles("Expand")
def expand(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Expand: the target becomes the whole output shape."""
    data = builder.shape(node.input(0))
    target = tuple(int(v) for v in builder.need_const(node.input(1), "the target shape").reshape(-1))
    try:
        full = np.broadcast_shapes(data, target)
    except ValueError as error:
        raise CompileError(f"{node.label}: {list(data)} cannot be broadcast to {list(target)}") from error
    op = "Expand" if target else "Reshape"  # which onnxruntime keeps, too, though it changes nothing
    builder.emit(op, [node.input(0), builder.ints("shape", full)], node.outputs)


@handles("Range")
def range_(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Range: start, limit and delta as scalars; some exporters write one-element vectors."""
    names = [
        builder.constant(what, builder.need_const(name, what).reshape(-1)[0])
        for what, name in zip(("start", "limit", "delta"), node.inputs)
    ]
    builder.emit("Range", names, node.outputs)


@handles("Upsample")
def upsample(builder: OnnxBuilder, node: OnnxNode) -> None:
    scales = node.attrs.get("scales")
    scales = builder.constant("scales", scales, np.float32) if scales is not None else node.input(1)
    if not scales:
        raise CompileError(f"{node.label}: scales are missing")
    _resize_10(builder, node, scales)


def _resize_10(builder: OnnxBuilder, node: OnnxNode, scales: str) -> None:
    """Imports a Resize of opset 10, with asymmetric positions. Its nearest place is the one above where an axis becomes
    shorter, else the one below; the newer op has one rule for all axes. So axes that become shorter go first.
    """
    mode, factors = node.attrs.get("mode", "nearest"), builder.need_const(scales, "scales")
    if mode not in ("nearest", "linear", "bilinear"):
        raise UnsupportedError(f"{node.label}: mode={mode!r} is not supported; accepted: nearest, linear")
    attrs = {
        "mode": "nearest" if mode == "nearest" else "linear",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    shorter, data, one = factors < 1, node.input(0), np.float32(1)
    if mode == "nearest" and shorter.any():
        first, attrs["nearest_mode"] = builder.constant("scales", np.where(shorter, factors, one)), "ceil"
        if np.any(factors > 1):
            data = builder.emit("Resize", [data, "", first], attrs=attrs)
            first, attrs["nearest_mode"] = builder.constant("scales", np.where(shorter, one, factors)), "floor"
        scales = first
    _emit_resize(builder, node, [data, "", scales], attrs)


def _emit_resize(builder: OnnxBuilder, node: OnnxNode, inputs: Sequence[str], attrs: Mapping[str, Any]) -> None:
    """Emits a Resize. One to the same size leaves the elements unchanged in onnxruntime, whatever the scales are."""
    crops = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    made = builder.emit("Resize", inputs, node.outputs, dict(attrs))
    last = builder.graph.nodes[-1] if builder.graph.nodes else None
    if (
        last is not None
        and last.outputs == [made]
        and builder.shape(made) == builder.shape(node.input(0))
        and not crops
    ):
        last.become("Reshape", [node.input(0), builder.ints("shape", builder.shape(made))], {"allowzero": 1})


@handles("Resize")
def resize(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Resize: the region of interest only for tf_crop_and_resize; empty scales or sizes are left out."""
    if node.version < 11:
        _resize_10(builder, node, node.input(1))
        return
    for attr, accepted in (
        ("mode", ("nearest", "linear", "cubic")),
        ("coordinate_transformation_mode",
         ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
          "tf_half_pixel_for_nn", "tf_crop_and_resize")),
        ("nearest_mode", ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    ):  # fmt: skip
        node.accept(attr, *accepted)
    crop = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    roi, scales, sizes = (node.input(i) for i in (1, 2, 3))
    scales = "" if scales and builder.tensor(scales).size == 0 else scales
    if not scales and not sizes:
        raise CompileError(f"{node.label}: neither scales nor sizes are given")
    for name, what in ((scales, "scales"), (sizes, "sizes"), (roi if crop else "", "roi")):
        if name:
            builder.need_const(name, what)
    _emit_resize(builder, node, [node.input(0), roi if crop else "", scales, sizes], node.attrs)


@handles("Scatter")
def scatter(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Scatter, the name of ScatterElements before opset 11."""
    _check_axes(builder, node)
    builder.emit("ScatterElements", node.inputs, node.outputs, {"axis": int(node.attrs.get("axis", 0))})


@handles(
    "GatherElements", "ScatterElements", "ReverseSequence", "LayerNormalization", "LpNormalization", "RMSNormalization"
)  # fmt: skip
def along_axes(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Checks that axes exist, which onnx's shape inference of these ops does not, and emits the node unchanged."""
    _check_axes(builder, node)
    builder.passthrough(node)


def _check_axes(builder: OnnxBuilder, node: OnnxNode) -> None:
    for name in ("axis", "time_axis", "batch_axis"):
        if name in node.attrs:
            normal_axes(node, [int(node.attrs[name])], len(builder.shape(node.input(0))))


@handles("Transpose")
def transpose(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Transpose: perm always present, and checked to name each axis once, which onnx does not require."""
    rank = len(builder.shape(node.input(0)))
    perm = [int(p) for p in node.attrs.get("perm", range(rank)[::-1])]
    if sorted(perm) != list(range(rank)):
        raise CompileError(f"{node.label}: perm={perm} must name each of the {rank} axes of its input once")
    builder.passthrough(node, perm=perm or None)


@handles("GatherND")
def gather_nd(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Checks that batch_dims is in range, where onnx's shape inference crashes, and emits the node unchanged."""
    batches, most = int(node.attrs.get("batch_dims", 0)), min(len(builder.shape(n)) for n in node.inputs[:2]) - 1
    if not 0 <= batches <= most:
        raise CompileError(f"{node.label}: batch_dims={batches} must be in 0..{most}")
    builder.passthrough(node)


@handles("SpaceToDepth")
def space_to_depth(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Checks that blocks fill the planes, where onnx rounds the result's sizes down, and emits the node unchanged."""
    shape, block = builder.shape(node.input(0)), int(node.attrs["blocksize"])
    if block > 0 and any(size % block for size in shape[2:]):
        raise CompileError(f"{node.label}: blocksize={block} must divide the planes of {list(shape)}")
    builder.passthrough(node)
