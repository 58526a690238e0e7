"""MaxPool, AveragePool, LpPool: explicit pads, `ceil_mode` as end padding where that is equal, windows no larger than
their input where padding does not count.
"""

from __future__ import annotations

from typing import Any

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.windows import clipped
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.convolution import auto_pad, spatial, window_pads
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode


def pool_attrs(builder: OnnxBuilder, node: OnnxNode, data: str, average: bool) -> dict[str, Any]:
    """Normal attributes of a pooling window over `data` [N,C,spatial]."""
    x = builder.shape(data)
    rank = len(x) - 2
    if rank < 1:
        raise CompileError(f"{node.label}: input {list(x)} must be [N,C,spatial]")
    if not node.attrs.get("kernel_shape"):
        raise CompileError(f"{node.label}: kernel_shape is missing")
    kernel = spatial(node, "kernel_shape", rank, 1)
    strides, dilations = spatial(node, "strides", rank, 1), spatial(node, "dilations", rank, 1)
    pads = window_pads(node, x[2:], kernel, strides, dilations)
    ceil = int(node.attrs.get("ceil_mode", 0)) if auto_pad(node) == "NOTSET" else 0
    count = int(node.attrs.get("count_include_pad", 0)) if average else 0
    if ceil:
        ends = _ceil_ends(x[2:], kernel, strides, dilations, pads)
        # Counted padding is part of the divisor, the overhang of ceil mode is not: only then keep the attribute.
        if not (average and count and ends != pads[rank:]):
            pads, ceil = pads[:rank] + ends, 0
    if not count:
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        outputs = [(n + pads[i] + pads[rank + i] - reach[i]) // strides[i] + 1 for i, n in enumerate(x[2:])]
        if min(outputs) > 0:
            kernel, pads = clipped(x[2:], kernel, strides, dilations, pads, outputs)
    return {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil,
        "count_include_pad": count if average else None, "auto_pad": None,
    }  # fmt: skip


def _ceil_ends(size: Any, kernel: Any, strides: Any, dilations: Any, pads: list[int]) -> list[int]:
    """End pads with which floor division gives ceil mode's output size; no window starts in the end padding."""
    rank = len(kernel)
    ends = []
    for i, (n, k, s, d) in enumerate(zip(size, kernel, strides, dilations)):
        begin, end, reach = pads[i], pads[rank + i], (k - 1) * d + 1
        count = -(-(n + begin + end - reach) // s) + 1
        if (count - 1) * s >= n + begin:
            count -= 1
        ends.append(max(end, (count - 1) * s + reach - n - begin))
        # No larger pad can express a result shorter than floor mode's; shrink instead.
        if (n + begin + ends[-1] - reach) // s + 1 > count:
            ends[-1] = (count - 1) * s + reach - n - begin
    return ends


@handles("MaxPool")
def max_pool(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs = pool_attrs(builder, node, node.input(0), average=False)
    attrs["storage_order"] = int(node.attrs.get("storage_order", 0))
    builder.emit("MaxPool", node.inputs, node.outputs, attrs)


@handles("AveragePool")
def average_pool(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.emit("AveragePool", node.inputs, node.outputs, pool_attrs(builder, node, node.input(0), average=True))


@handles("LpPool")
def lp_pool(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs = pool_attrs(builder, node, node.input(0), average=False)
    builder.emit("LpPool", node.inputs, node.outputs, {**attrs, "p": node.positive("p", 2)})


@handles("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(builder: OnnxBuilder, node: OnnxNode) -> None:
    if len(builder.shape(node.input(0))) < 3:
        raise CompileError(f"{node.label}: input {list(builder.shape(node.input(0)))} must be [N,C,spatial]")
    node.positive("p", 2)
    builder.passthrough(node)


@handles("RoiAlign")
def roi_align(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports RoiAlign: before opset 16 there was one way to count pixels."""
    mode = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    builder.passthrough(node, coordinate_transformation_mode=mode if node.version >= 16 else "output_half_pixel")
