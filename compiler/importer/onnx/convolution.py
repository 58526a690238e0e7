"""Conv, ConvTranspose, ConvInteger, DeformConv: explicit kernel shape, strides, dilations and pads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def spatial(node: OnnxNode, attr: str, rank: int, default: int) -> list[int]:
    """A per-spatial-dimension attribute, checked: `rank` integers (2 * rank for pads)."""
    length = 2 * rank if attr == "pads" else rank
    value = node.attrs.get(attr)
    values = [int(v) for v in value] if value else [default] * length
    if len(values) != length:
        raise CompileError(f"{node.label}: {attr}={values} must have {length} values for {rank} spatial dimensions")
    if attr in ("strides", "dilations", "kernel_shape") and min(values, default=1) < 1:
        raise CompileError(f"{node.label}: {attr}={values} must be positive")
    return values


def auto_pad(node: OnnxNode) -> str:
    mode = node.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    if mode not in AUTO_PADS:
        raise UnsupportedError(f"{node.label}: auto_pad={mode!r} is not supported; accepted: {', '.join(AUTO_PADS)}")
    return mode


def window_pads(
    node: OnnxNode, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Explicit pads (begins, then ends) of a window op over `size`, from `pads` or `auto_pad`."""
    mode = auto_pad(node)
    if mode == "NOTSET":
        return spatial(node, "pads", len(size), 0)
    begins, ends = [], []
    for length, k, s, d in zip(size, kernel, strides, dilations):
        # SAME: ceil(length / s) outputs, the odd element at the end (UPPER) or the beginning (LOWER).
        total = max((-(-length // s) - 1) * s + (k - 1) * d + 1 - length, 0) if mode != "VALID" else 0
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins + ends


def window_attrs(builder: OnnxBuilder, node: OnnxNode, data: str, weights: str) -> dict[str, object]:
    """The normal attributes of a convolution of `data` [N,C,spatial] with `weights` [O,C/group,kernel]."""
    x, w = builder.shape(data), builder.shape(weights)
    rank = len(x) - 2
    if rank < 1 or len(w) != len(x):
        raise CompileError(f"{node.label}: input {list(x)} and weights {list(w)} must have the same rank, 3 or more")
    kernel = spatial(node, "kernel_shape", rank, 0) if node.attrs.get("kernel_shape") else list(w[2:])
    if kernel != list(w[2:]):
        raise CompileError(f"{node.label}: kernel_shape={kernel} does not fit the weights {list(w)}")
    strides, dilations = spatial(node, "strides", rank, 1), spatial(node, "dilations", rank, 1)
    group = int(node.attrs.get("group", 1))
    if group < 1:
        raise CompileError(f"{node.label}: group={group} must be positive")
    return {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": group}


def conv_attrs(builder: OnnxBuilder, node: OnnxNode, data: str, weights: str) -> dict[str, object]:
    """The attributes of `window_attrs` with explicit pads and no auto_pad, channel counts checked."""
    attrs = window_attrs(builder, node, data, weights)
    x, w, group = builder.shape(data), builder.shape(weights), int(str(attrs["group"]))
    if x[1] != w[1] * group or w[0] % group:
        raise CompileError(f"{node.label}: input {list(x)}, weights {list(w)} and group={group} do not fit each other")
    size: Sequence[int] = x[2:]
    pads = window_pads(node, size, attrs["kernel_shape"], attrs["strides"], attrs["dilations"])  # type: ignore[arg-type]
    windows = zip(size, attrs["kernel_shape"], attrs["dilations"], pads, pads[len(size) :])  # type: ignore[call-overload]
    for length, k, dilation, begin, end in windows:
        reach = (k - 1) * dilation + 1
        if length + begin + end < reach:
            raise CompileError(
                f"{node.label}: a window of {reach} does not fit a length of {length} with pads {begin} and {end}"
            )
    return {**attrs, "pads": pads, "auto_pad": None}


@handles("Conv")
def conv(builder: OnnxBuilder, node: OnnxNode) -> None:
    builder.emit("Conv", node.inputs, node.outputs, conv_attrs(builder, node, node.input(0), node.input(1)))


@handles("ConvInteger")
def conv_integer(builder: OnnxBuilder, node: OnnxNode) -> None:
    if node.input(3):
        builder.need_const(node.input(3), "w_zero_point")
    builder.emit("ConvInteger", node.inputs, node.outputs, conv_attrs(builder, node, node.input(0), node.input(1)))


@handles("ConvTranspose")
def conv_transpose(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs = conv_transpose_attrs(builder, node, node.input(0), node.input(1))
    builder.emit("ConvTranspose", node.inputs, node.outputs, attrs)


def conv_transpose_attrs(builder: OnnxBuilder, node: OnnxNode, data: str, weights: str) -> dict[str, object]:
    """Normal attributes of a transposed convolution: output_shape and auto_pad become pads.

    out = stride * (in - 1) + output_padding + (k - 1) * dilation + 1 - pad_begin - pad_end
    """
    attrs = window_attrs(builder, node, data, weights)
    x, w = builder.shape(data), builder.shape(weights)
    if x[1] != w[0] or x[1] % int(str(attrs["group"])):
        raise CompileError(f"{node.label}: input {list(x)} and weights {list(w)} do not fit each other")
    rank = len(x) - 2
    extra = spatial(node, "output_padding", rank, 0)
    kernel, strides, dilations = attrs["kernel_shape"], attrs["strides"], attrs["dilations"]
    full = [
        s * (i - 1) + o + (k - 1) * d + 1
        for i, o, k, s, d in zip(x[2:], extra, kernel, strides, dilations)  # type: ignore[call-overload]
    ]
    mode = auto_pad(node)
    wanted = [int(v) for v in node.attrs.get("output_shape") or []][-rank:]
    if not wanted and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [i * s for i, s in zip(x[2:], strides)]  # type: ignore[call-overload]
    if not wanted:
        pads = spatial(node, "pads", rank, 0) if mode == "NOTSET" else [0] * (2 * rank)
    else:
        totals = [f - o for f, o in zip(full, wanted)]
        extra = [e - min(t, 0) for e, t in zip(extra, totals)]
        totals = [max(t, 0) for t in totals]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = small + large if mode == "SAME_UPPER" else large + small
    return {**attrs, "pads": pads, "output_padding": extra, "auto_pad": None, "output_shape": None}


@handles("DeformConv")
def deform_conv(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Emits columns at moved positions, then one product per group. Inputs X, W, offset, B, mask."""
    x, w, offset, bias, mask = (node.input(k) for k in range(5))
    if len(builder.shape(x)) != 4:
        raise UnsupportedError(
            f"{node.label}: input {list(builder.shape(x))} has not 2 spatial dimensions; 2 are accepted"
        )
    attrs = window_attrs(builder, node, x, w)
    groups, offset_groups = int(node.attrs.get("group", 1)), int(node.attrs.get("offset_group", 1))
    (n, channels, *_), (outputs, inner, *kernel) = builder.shape(x), builder.shape(w)
    taps, spatial_shape = math.prod(kernel), builder.shape(offset)[2:]
    expected = (n, offset_groups * taps * 2)
    if channels != inner * groups or channels % offset_groups or builder.shape(offset)[:2] != expected:
        raise CompileError(
            f"{node.label}: input {list(builder.shape(x))}, weights {list(builder.shape(w))}, offset "
            f"{list(builder.shape(offset))}, group={groups}, offset_group={offset_groups} do not fit each other"
        )
    positions = math.prod(spatial_shape)
    windows = {k: attrs[k] for k in ("kernel_shape", "strides", "dilations")}
    windows["pads"] = spatial(node, "pads", 2, 0)
    columns = builder.emit(
        "DeformedColumns", [x, offset, mask],
        attrs={**windows, "offset_group": offset_groups, "shape": [n, channels, taps, positions]},
    )  # fmt: skip
    columns = builder.reshaped(columns, [n, groups, inner * taps, positions])
    y = builder.emit("MatMul", [builder.reshaped(w, [1, groups, outputs // groups, inner * taps]), columns])
    y = builder.reshaped(y, [n, outputs, *spatial_shape])
    if bias:
        y = builder.emit("Add", [y, builder.reshaped(bias, [1, outputs, 1, 1])])
    builder.emit("Identity", [y], [node.output(0)])
