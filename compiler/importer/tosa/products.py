"""CONV2D, DEPTHWISE_CONV2D, CONV3D, TRANSPOSE_CONV2D and MATMUL: sums on the CPU, and what the NPU needs to make the
bytes of a RESCALE behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import Clamped
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa.builder import FILE, PLANES, TO_PLANES, TosaBuilder, handles
from tilewright.compiler.importer.tosa.passes import Pass
from tilewright.compiler.importer.tosa.records import TosaOp


class Sums(Struct):
    """A product of 8-bit operands.

    Attributes:
        op: the quantised op, unclamped.
        x: its activation, as a tensor of the graph.
        zero: zero point of the activation.
        weights: int8 in the op's order; or the tensor of a second activation.
        axis: which of their axes counts channels.
        weight_zero: zero point of the weights.
        bias: int32 [channels], None where there is none.
        shape: shape of the result in the op's order.
        reach: the least and the largest sum of each channel, int64 [channels].
        form: form of the result, FILE or PLANES.
    """

    op: Clamped
    x: str
    zero: int
    weights: np.ndarray | str
    axis: int
    weight_zero: int
    bias: np.ndarray | None
    shape: tuple[int, ...]
    reach: tuple[np.ndarray, np.ndarray]
    form: str = PLANES

    def inputs(self, b: TosaBuilder, part: Pass) -> list[str]:
        """The operands of the op that is one pass of the NPU over these sums."""
        x, factors = b.relabelled(self.x, np.float32(1), self.zero), part.factors
        if isinstance(self.weights, str):
            return [x, b.relabelled(self.weights, factors[0], self.weight_zero)]
        same = bool(np.all(factors == factors[0]))
        quant = Quant.of(factors[0] if same else factors, self.weight_zero, None if same else self.axis)
        bias = part.offsets if self.bias is None else part.offsets + self.bias
        given = [b.constant(bias, np.int32)] if bias.any() else []
        return [x, b.graph.constant("weights", np.ascontiguousarray(self.weights), quant), *given]


class Window(Struct):
    """The geometry of a convolution, by ONNX's names; `weights` are in its order [O,C/group,kernel]."""

    kernel: list[int]
    strides: list[int]
    pads: list[int]
    dilations: list[int]
    group: int
    weights: Sequence[int]

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel, "strides": self.strides, "pads": self.pads, "dilations": self.dilations,
            "group": self.group,
        }  # fmt: skip


def _window(b: TosaBuilder, rank: int, kernel: Sequence[int], group: int, order: Sequence[int]) -> Window:
    pad = b.numbers("pad", 2 * rank)
    strides, dilations = b.numbers("stride", rank), b.numbers("dilation", rank)
    if min(pad) < 0 or min(*strides, *dilations, *kernel) < 1:
        raise b.damaged(f"pad {pad}, stride {strides}, dilation {dilations}, kernel {list(kernel)}")
    return Window(list(kernel), strides, [*pad[0::2], *pad[1::2]], dilations, group, order)


@handles("conv2d", "conv3d")
def convolution(b: TosaBuilder, op: TosaOp) -> None:
    """Imports a convolution: x [N,spatial,C], weights [O,spatial,C], bias [O] or [1], zero points."""
    rank = 3 if op.name == "conv3d" else 2
    weights = b.shape(1)
    if len(b.shape(0)) != rank + 2 or len(weights) != rank + 2:
        raise b.damaged(f"operands {b.type(0)} and {b.type(1)}; rank {rank + 2} is needed")
    order = (0, rank + 1, *range(1, rank + 1))
    _convolve(b, _window(b, rank, weights[1:-1], 1, order), lambda w: w.transpose(order))


@handles("depthwise_conv2d")
def depthwise(b: TosaBuilder, op: TosaOp) -> None:
    """Imports a depthwise convolution: weights [KH,KW,C,M]."""
    if len(b.shape(0)) != 4 or len(b.shape(1)) != 4:
        raise b.damaged(f"operands {b.type(0)} and {b.type(1)}; rank 4 is needed")
    kh, kw, channels, times = b.shape(1)
    turned = lambda w: w.transpose(2, 3, 0, 1).reshape(channels * times, 1, kh, kw)
    _convolve(b, _window(b, 2, (kh, kw), channels, ()), turned)


def _convolve(b: TosaBuilder, window: Window, turned: Callable[[np.ndarray], np.ndarray]) -> None:
    rank = len(window.kernel)
    x = b.value(0, PLANES) if rank == 2 else b.permuted(b.value(0), (0, rank + 1, *range(1, rank + 1)))
    zx, zw = b.scalar(3, "input_zp"), b.scalar(4, "weight_zp")
    weights = turned(b.const(1, "weights"))
    if b.type(0).element in ("i8", "ui8"):
        sums = _planes_sum(b, x, weights, (zx, zw), window)
        if rank == 2:
            _offer(b, x, weights, (zx, zw), window)
    else:
        sums = _real_sum(b, x, weights, window)
    if rank == 2:
        b.finish(sums, PLANES)
    else:
        b.finish(b.permuted(sums, (0, *range(2, rank + 2), 1)))


def _planes_sum(b: TosaBuilder, x: str, weights: np.ndarray, zeros: tuple[int, int], window: Window) -> str:
    """The int32 sums of a convolution of 8-bit planes, on the CPU."""
    inputs = [x, b.constant(np.ascontiguousarray(weights))]
    inputs += [b.constant(z, t) for z, t in zip(zeros, (b.type(0).dtype, weights.dtype))]
    return _biased(b, b.onnx("ConvInteger", inputs, window.attrs), len(weights), len(window.kernel))


def _biased(b: TosaBuilder, sums: str, channels: int, rank: int) -> str:
    bias = b.const(2, "bias").reshape(-1)
    if bias.size not in (1, channels):
        raise b.damaged(f"{bias.size} biases for {channels} channels")
    if not bias.any():
        return sums
    along = np.broadcast_to(bias, (channels,)).reshape(-1, *[1] * rank)
    return b.onnx("Add", [sums, b.constant(along, b.graph.tensor(sums).dtype)])


def _real_sum(b: TosaBuilder, x: str, weights: np.ndarray, window: Window) -> str:
    """Sums of floats; those of 16-bit integers are exact in float64, being below 2^48."""
    made, want = b.graph.tensor(x).dtype, b.target().dtype
    inner = np.float64 if made.kind in "iu" else np.float32
    rank = len(window.kernel)
    inputs = [b.cast(x, inner), b.constant(np.ascontiguousarray(weights), inner)]
    sums = b.cast(b.onnx("Conv", inputs, window.attrs), np.int64 if made.kind in "iu" else want)
    return b.cast(_biased(b, sums, len(weights), rank), want)


def _offer(b: TosaBuilder, x: str, weights: np.ndarray, zeros: tuple[int, int], window: Window) -> None:
    """Notes the convolution for a RESCALE behind it."""
    op = QConv(
        kernel=tuple(window.kernel), strides=tuple(window.strides), pads=tuple(window.pads),
        dilations=tuple(window.dilations), group=window.group,
    )  # fmt: skip
    spatial = op.positions(b.graph.tensor(x).shape[2:])
    shape = (b.graph.tensor(x).shape[0], len(weights), *spatial)
    offer(b, op, x, weights, 0, zeros, b.const(2, "bias"), shape, PLANES)


def offer(
    b: TosaBuilder,
    op: Clamped,
    x: str,
    weights: np.ndarray | str,
    axis: int,
    zeros: tuple[int, int],
    bias: np.ndarray | None,
    shape: tuple[int, ...],
    form: str,
    depth: int = 0,
) -> None:
    """Notes a product of 8 bits for a RESCALE behind it.

    Args:
        zeros: zero points of x and the weights.
        depth: length of the sums, where the weights are an activation.
    """
    tensor, (zx, zw) = b.graph.tensor(x), zeros
    if tensor.dtype not in EIGHT_BIT or tensor.data is not None:
        return
    info = np.iinfo(tensor.dtype)
    least, most = info.min - zx, info.max - zx
    if isinstance(weights, str):
        w = np.iinfo(b.graph.tensor(weights).dtype)
        ends = [depth * p * q for p in (least, most) for q in (w.min - zw, w.max - zw)]
        reach = (np.array([min(ends)], np.int64), np.array([max(ends)], np.int64))
    else:
        rows = np.moveaxis(weights.astype(np.int64) - zw, axis, 0)
        rows = rows.reshape(len(rows), -1)
        up, down = np.maximum(rows, 0).sum(axis=1), np.minimum(rows, 0).sum(axis=1)
        added = np.broadcast_to(np.int64(0) if bias is None else bias.astype(np.int64).reshape(-1), up.shape)
        # With padding fewer taps count, which is as if x were its zero point there: within least to most.
        least, most = min(least, 0), max(most, 0)
        reach = (up * least + down * most + added, up * most + down * least + added)
        bias = np.ascontiguousarray(added) if added.any() else None
    number = b.op.results[0]
    b.sums[number] = Sums(op, x, zx, weights, axis, zw, bias, shape, reach, form)


@handles("transpose_conv2d")
def transposed(b: TosaBuilder, op: TosaOp) -> None:
    """Imports a transposed convolution: weights [O,KH,KW,C], `out_pad` rows and columns added around the result."""
    if len(b.shape(0)) != 4 or len(b.shape(1)) != 4:
        raise b.damaged(f"operands {b.type(0)} and {b.type(1)}; rank 4 is needed")
    channels, *kernel, _ = b.shape(1)
    top, bottom, left, right = b.numbers("out_pad", 4)
    strides = b.numbers("stride", 2)
    if min(strides) < 1 or min(top, bottom) <= -kernel[0] or min(left, right) <= -kernel[1]:
        raise b.damaged(f"out_pad {[top, bottom, left, right]}, stride {strides}, kernel {kernel}")
    x = b.value(0, PLANES)
    zeros = b.scalar(3, "input_zp"), b.scalar(4, "weight_zp")
    weights = b.const(1, "weights").transpose(TO_PLANES)
    pads = [kernel[0] - 1 + top, kernel[1] - 1 + left, kernel[0] - 1 + bottom, kernel[1] - 1 + right]
    window = Window(kernel, [1, 1], pads, [1, 1], 1, ())
    spread, flipped = _spread(b, x, zeros[0], strides), weights[:, :, ::-1, ::-1]
    if b.type(0).element not in ("i8", "ui8"):
        b.finish(_real_sum(b, spread, flipped, window), PLANES)
        return
    sums = _planes_sum(b, spread, flipped, zeros, window)
    if min(top, left) <= 0 and (top <= 0 and left <= 0):
        cut = [-top, -left, max(-bottom, 0), max(-right, 0)]
        extra = (max(bottom, 0), max(right, 0))
        if extra[0] < strides[0] and extra[1] < strides[1]:
            quantised = QConvTranspose(
                kernel=tuple(kernel), strides=tuple(strides), pads=tuple(cut), output_padding=extra
            )
            shape = (b.shape(0)[0], channels, *b.graph.tensor(sums).shape[2:])
            offer(b, quantised, x, weights.transpose(1, 0, 2, 3), 1, zeros, b.const(2, "bias"), shape, PLANES)
    b.finish(sums, PLANES)


def _spread(b: TosaBuilder, x: str, zero: int, strides: Sequence[int]) -> str:
    """Planes with the zero point between their elements: a transposed convolution is one of them by flipped weights."""
    n, c, h, w = b.graph.tensor(x).shape
    (sh, sw), dtype = strides, b.graph.tensor(x).dtype
    if (sh, sw) == (1, 1):
        return x
    apart = b.reshaped(x, (n, c, h, 1, w, 1))
    padded = b.onnx("Pad", [apart, b.constant([*[0] * 9, sh - 1, 0, sw - 1], np.int64), b.constant(zero, dtype)])
    whole = b.reshaped(padded, (n, c, h * sh, w * sw))
    ends = [(h - 1) * sh + 1, (w - 1) * sw + 1]
    return b.onnx("Slice", [whole, *(b.constant(v, np.int64) for v in ([0, 0], ends, [2, 3], [1, 1]))])


@handles("matmul")
def matmul(b: TosaBuilder, op: TosaOp) -> None:
    """Imports a product of [N,H,C] and [N,C,W] with a zero point each."""
    (n, h, c), (_, rows, w) = (b.shape(k) if len(b.shape(k)) == 3 else (0, 0, 0) for k in (0, 1))
    if not n or rows != c:
        raise b.damaged(f"operands {b.type(0)} and {b.type(1)}; [N,H,C] and [N,C,W] are needed")
    za, zb = b.scalar(2, "a_zp"), b.scalar(3, "b_zp")
    x, y = b.value(0), b.value(1)
    if b.type(0).element in ("i8", "ui8"):
        zeros = [b.constant(z, b.type(k).dtype) for k, z in ((0, za), (1, zb))]
        sums = b.onnx("MatMulInteger", [x, y, *zeros])
        data = b.known(op.operands[1])
        if data is not None and n == 1:
            offer(b, QMatMul(), x, data[0], 1, (za, zb), None, (n, h, w), FILE)
        elif data is None:
            offer(b, QMatMul(), x, y, 2, (za, zb), None, (n, h, w), FILE, depth=c)
    elif b.type(0).dtype.kind in "iu":
        sums = b.cast(b.onnx("MatMul", [b.cast(x, np.float64), b.cast(y, np.float64)]), b.target().dtype)
    else:
        sums = b.cast(b.onnx("MatMul", [b.cast(x, np.float32), b.cast(y, np.float32)]), b.target().dtype)
    b.finish(sums)
