"""DFT and STFT."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.fourier import transform
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode


@handles("DFT")
def dft(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports [..., n, ..., 1 or 2] -> [..., k, ..., 2], real and imaginary parts last; inverse and one-sided: real,
    [..., 1].

    The axis is an input since opset 20; before, an attribute with the default 1.
    """
    x = node.input(0)
    rank = len(builder.shape(x))
    if node.version < 20:
        axis = int(node.attrs.get("axis", 1))
    else:
        axis = _integer(builder, node.input(2), "axis") if node.input(2) else -2
    if not -rank <= axis < rank or axis % rank == rank - 1:
        raise CompileError(f"{node.label}: axis {axis} must be an axis before the last one of {list(builder.shape(x))}")
    axis %= rank
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    n = builder.shape(x)[axis]
    length = 2 * (n - 1) if inverse and onesided else n
    if node.input(1):
        length = _integer(builder, node.input(1), "dft_length")
    if length < 1:
        raise CompileError(f"{node.label}: the transform has length {length}; it must be at least 1")
    perm = [*(a for a in range(rank) if a not in (axis, rank - 1)), axis, rank - 1]
    y = transform(builder, builder.emit("Transpose", [x], attrs={"perm": perm}), length, inverse, onesided)
    builder.emit("Transpose", [y], [node.output(0)], {"perm": [int(p) for p in np.argsort(perm)]})


@handles("STFT")
def stft(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports signal [batch, samples, 1 or 2] -> [batch, frames, bins, 2]; window [w] with w up to the frame length."""
    signal = node.input(0)
    if len(builder.shape(signal)) == 2:
        signal = builder.emit("Unsqueeze", [signal, builder.ints("axes", [2])])
    _, samples, _ = builder.shape(signal)
    step = _integer(builder, node.input(1), "frame_step")
    window = node.input(2)
    width = builder.shape(window)[0] if window else 0
    length = _integer(builder, node.input(3), "frame_length") if node.input(3) else width or samples
    width = width or length
    if step < 1 or not 1 <= length <= samples or width > length:
        raise CompileError(
            f"{node.label}: frame_step={step}, frame_length={length}, a window of {width} and {samples} samples do not "
            "fit each other"
        )
    count = 1 + (samples - length) // step
    frames = builder.emit(
        "Gather",
        [signal, builder.constant("frames", np.arange(count)[:, None] * step + np.arange(width))],
        attrs={"axis": 1},
    )
    if window:
        column = builder.emit("Unsqueeze", [window, builder.ints("axes", [1])])
        frames = builder.emit("Mul", [frames, column])
    y = transform(builder, frames, length, inverse=False, onesided=bool(node.attrs.get("onesided", 1)))
    builder.emit("Identity", [y], [node.output(0)])


def _integer(builder: OnnxBuilder, name: str, what: str) -> int:
    return int(builder.need_const(name, what).reshape(-1)[0])
