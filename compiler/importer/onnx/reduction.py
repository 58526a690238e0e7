"""Reductions, TopK and the softmax family: axes and k as inputs, one softmax axis."""

from __future__ import annotations

import math

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip


@handles(*REDUCTIONS)
def reduce(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports reductions: axes become a constant input, non-negative and sorted; all axes where none are named."""
    data, rank = node.input(0), len(builder.shape(node.input(0)))
    axes = node.attrs.get("axes")
    if axes is None and node.input(1):
        axes = [int(a) for a in builder.need_const(node.input(1), "axes").reshape(-1)]
    keep = int(node.attrs.get("keepdims", 1))
    noop = int(node.attrs.get("noop_with_empty_axes", 0))
    if not axes and noop:
        # ONNX 1.18 and onnxruntime: no axes means the elementwise part of the reduction only.
        builder.emit(node.op, [data], node.outputs, {"keepdims": keep, "noop_with_empty_axes": 1})
        return
    axes = normal_axes(node, axes, rank) if axes else list(range(rank))
    attrs = {"keepdims": keep, "noop_with_empty_axes": 0}
    builder.emit(node.op, [data, builder.ints("axes", axes)], node.outputs, attrs)


def normal_axes(node: OnnxNode, axes: list[int], rank: int) -> list[int]:
    """Normalises axes to non-negative, sorted ones. Raises CompileError for an axis out of range or named twice."""
    for axis in axes:
        if not -rank <= axis < rank:
            raise CompileError(f"{node.label}: axis {axis} must be in {-rank}..{rank - 1} for a tensor of rank {rank}")
    normal = sorted(a % rank for a in axes)
    if len(set(normal)) != len(normal):
        raise CompileError(f"{node.label}: axes {list(axes)} name one axis twice")
    return normal


@handles("TopK")
def top_k(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs = {k: v for k, v in node.attrs.items() if k != "k"}
    k = builder.ints("k", [node.attrs["k"]]) if "k" in node.attrs else node.input(1)
    builder.emit("TopK", [node.input(0), k], node.outputs, attrs)


@handles("Softmax", "LogSoftmax", "Hardmax")
def softmax(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports the softmax family. Before opset 13 the op acts on all dimensions from `axis` on at once: reshape, act on
    the last, reshape back.
    """
    data = node.input(0)
    shape = builder.shape(data)
    axis = int(node.attrs.get("axis", 1 if node.version < 13 else -1))
    if shape and not -len(shape) <= axis < len(shape) + (node.version < 13):
        raise CompileError(f"{node.label}: axis {axis} must be in {-len(shape)}..{len(shape) - 1}")
    axis += len(shape) if axis < 0 else 0
    if node.version >= 13 or math.prod(shape[axis + 1 :]) == 1:
        if axis < len(shape) or not shape:
            builder.emit(node.op, [data], node.outputs, {"axis": axis})
            return
    flat = builder.reshaped(data, [math.prod(shape[:axis]), math.prod(shape[axis:])])
    builder.reshaped(builder.emit(node.op, [flat], attrs={"axis": 1}), shape, node.outputs)
