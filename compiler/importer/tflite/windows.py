"""Windows, weights and shapes of convolutions, products and pools: the same for floats, 8 and 16 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.graph.windows import clipped
from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.package import tflite


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution, transposed or not.

    Attributes:
        kernel, strides, dilations, pads: one value per axis, pads first all begins, then all ends.
        out: shape of the result, [N,O,H,W].
        axis: axis of the file's weights that counts the channels of the result.
        order: permutation of the file's weights to ONNX's [O,C/group,kh,kw], or [C,O,kh,kw] of a transposed one.
        extra: rows and columns that the result of a transposed one has behind the last window.
        x, bias: which inputs of the operator they are; input 1 has the weights.
        refused: True where XNNPACK leaves a transposed one to the built-in kernels, whatever its types.
    """

    kernel: list[int]
    strides: list[int]
    pads: list[int]
    out: tuple[int, ...]
    axis: int = 0
    order: tuple[int, ...] = (3, 0, 1, 2)
    dilations: Sequence[int] = (1, 1)
    group: int = 1
    extra: Sequence[int] = ()
    x: int = 0
    bias: int = 2
    refused: bool = False

    @property
    def sliding(self) -> dict[str, Any]:
        """The attributes of a convolution beside the kernel, by ONNX's names."""
        return {"strides": self.strides, "pads": self.pads, "dilations": self.dilations, "group": self.group}


def image(b: TfliteBuilder, k: int) -> tuple[int, ...]:
    """The shape of an input of rank 4 (NHWC). Raises CompileError for another rank."""
    shape = b.shape(k)
    if len(shape) != 4:
        raise b.damaged(f"input has shape {list(shape)}, rank 4 is needed")
    return shape


def weights_shape(b: TfliteBuilder, rank: int) -> tuple[int, ...]:
    """The shape of the weights, input 1. Raises CompileError for another rank, or without elements."""
    shape = b.shape(1)
    if len(shape) != rank or 0 in shape:
        raise b.damaged(f"weights {b.source(1).name!r} have shape {list(shape)}, rank {rank} is needed")
    return shape


def strides_of(b: TfliteBuilder, default: int = 1) -> list[int]:
    return [b.op.option("StrideH", default), b.op.option("StrideW", default)]


def windows(
    b: TfliteBuilder, size: Sequence[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """Output sizes and pads (begins, then ends) of the op's padding, SAME or VALID."""
    padding = b.op.option("Padding", 0)
    if min([*kernel, *strides, *dilations, *size]) < 1:
        raise b.damaged(f"kernel {kernel}, stride {strides}, dilation {dilations} on {list(size)}")
    out, begins, ends = [], [], []
    for n, k, s, d in zip(size, kernel, strides, dilations):
        reach = (k - 1) * d + 1
        if padding == tflite.Padding.SAME:
            count = -(-n // s)
            total = max((count - 1) * s + reach - n, 0)
        elif padding == tflite.Padding.VALID:
            count, total = -(-(n - reach + 1) // s), 0
        else:
            raise b.damaged(f"padding {padding}")
        if count < 1:
            raise b.damaged(f"a window of {reach} does not fit {n}")
        out.append(count)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return out, begins + ends


def convolution_window(b: TfliteBuilder) -> Window:
    """The geometry of a CONV_2D, with weights [O,kh,kw,C/group], or DEPTHWISE_CONV_2D, with weights [1,kh,kw,O]."""
    (n, *size, channels), weights = image(b, 0), weights_shape(b, 4)
    depthwise = b.op.name == "DEPTHWISE_CONV_2D"
    axis, order = (3, (3, 0, 1, 2)) if depthwise else (0, (0, 3, 1, 2))
    made, each, *kernel = (weights[i] for i in order)
    if (depthwise and each != 1) or channels % each or made % (channels // each):
        raise b.damaged(f"{channels} channels and weights {list(weights)}")
    strides = strides_of(b)
    dilations = [b.op.option("DilationHFactor", 1), b.op.option("DilationWFactor", 1)]
    out, pads = windows(b, size, kernel, strides, dilations)
    return Window(kernel, strides, pads, (n, made, *out), axis, order, dilations, channels // each)


def transposed_window(
    b: TfliteBuilder, x: int, bias: int, target: Sequence[int], strides: list[int], same: bool
) -> Window:
    """The geometry of a transposed convolution with weights [O,kh,kw,C].

    Args:
        x, bias: which inputs they are.
        target: shape of the result, [N,H,W,O].
        same: padding SAME, else VALID.
    """
    shape, weights = image(b, x), weights_shape(b, 4)
    made, *kernel, channels = weights
    if len(target) != 4 or channels != shape[3] or target[3] != made or target[0] != shape[0]:
        raise b.damaged(f"input {list(shape)}, weights {list(weights)} and output {list(target)}")
    begins, ends, extra, refused = [], [], [], False
    for n, k, s, size in zip(shape[1:3], kernel, strides, target[1:3]):
        if s < 1 or size < 1:
            raise b.damaged(f"stride {strides} and output {list(target)}")
        full = (n - 1) * s + k
        total = max(full - size, 0) if same else 0
        begins.append(total // 2)
        ends.append(max(full - size - total // 2, 0))
        extra.append(max(size - full, 0))
        if extra[-1] >= s:
            raise b.refuse(f"output {list(target)} is larger than stride and kernel reach")
        refused |= k < s or -(-size // s) != n if same else k > size
    out = (target[0], made, *target[1:3])
    return Window(kernel, strides, begins + ends, out, extra=extra, x=x, bias=bias, refused=refused)


def pool_windows(b: TfliteBuilder) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, pads and output sizes of a pool of input 0; taps that never reach the input are cut off."""
    size, strides = image(b, 0)[1:3], strides_of(b, 0)
    kernel = [b.op.option("FilterHeight", 0), b.op.option("FilterWidth", 0)]
    out, pads = windows(b, size, kernel, strides, [1, 1])
    kernel, pads = clipped(size, kernel, strides, [1, 1], pads, out)
    return kernel, strides, pads, out


def product_shapes(b: TfliteBuilder) -> tuple[int, tuple[int, ...]]:
    """The rows of input 0 of a FULLY_CONNECTED with weights [N,K], and the shape of its result."""
    if b.op.option("WeightsFormat", 0) != 0:
        raise b.refuse("shuffled weights are not supported")
    shape, (n, k) = b.shape(0), weights_shape(b, 2)
    rows, rest = divmod(math.prod(shape), k)
    keep = bool(b.op.option("KeepNumDims", False))
    if rest or (keep and (not shape or shape[-1] != k)):
        raise b.damaged(f"input {list(shape)} and weights {[n, k]}")
    return rows, ((*shape[:-1], n) if keep else (rows, n))
