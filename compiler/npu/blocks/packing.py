"""Inputs with few channels, packed by the CPU on their way to the NPU so that the first layer fills the array.

Kernel columns (and some or all kernel rows) become channels: with 3 channels and a 7x7 kernel one vector block would
use 3 of 16 lanes; packed, 147 values fill ten blocks. The variant with the fewest cycles is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.blocks.tables import OUTSIDE
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming


class PackedInput(Struct):
    """A packed input, and the convolution over it that equals the original one.

    Attributes:
        view: view of the packed tensor.
        pad, stride, dilation: (rows, columns) of that convolution.
        repack: turns weights [O, C, kh, kw] into those of that convolution.
    """

    view: View
    pad: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    repack: Callable[[np.ndarray], np.ndarray]


class PackingPlan(Struct, frozen=True):
    """One way to move kernel rows and columns into channels.

    Attributes:
        channels: channels of the input.
        kernel: kernel rows and columns of the original convolution.
        rows: kernel rows in one packed vector.
        plane: rows and columns of the packed input.
        kernel_rows: rows of the remaining kernel, which has one column.
        stride_rows, pad_rows, dilation_rows: vertical parameters of the remaining convolution.
        row_origin: input row of the first kernel row of the first packed row.
        row_step: input rows between packed rows.
        tap_step: input rows between the kernel rows of one packed vector.
    """

    channels: int
    kernel: tuple[int, int]
    rows: int
    plane: tuple[int, int]
    kernel_rows: int
    stride_rows: int
    pad_rows: int
    dilation_rows: int
    row_origin: int
    row_step: int
    tap_step: int

    @property
    def packed_channels(self) -> int:
        """The channels of a packed vector that hold values."""
        return self.rows * self.kernel[1] * self.channels

    def tables(
        self, n: int, block: int, stride_w: int, pad_w: int, dilation_w: int
    ) -> tuple[tuple[int, ...], list[dict[int, np.ndarray]]]:
        """Returns the `Relayout` from [N, C, H, W] to [N, h, w, packed channels], its channels padded to whole blocks.

        Args:
            n: images.
            block: lanes of a channel block, as `Converter.pack` expects it.
            stride_w, pad_w, dilation_w: horizontal parameters of the original convolution.

        Returns:
            (output shape, tables of the four input axes).
        """
        size = -(-self.packed_channels // block) * block
        tap, channel = np.divmod(np.arange(size), self.channels)
        row, col = np.divmod(tap, self.kernel[1])
        outside = row >= self.rows
        h, w = self.plane

        def table(values: np.ndarray) -> np.ndarray:
            return values.astype(np.int32)

        return (n, h, w, size), [
            {0: table(np.arange(n))},
            {3: table(np.where(outside, OUTSIDE, channel))},
            {
                1: table(np.arange(h) * self.row_step + self.row_origin),
                3: table(np.where(outside, 0, row * self.tap_step)),
            },
            {2: table(np.arange(w) * stride_w - pad_w), 3: table(np.where(outside, 0, col * dilation_w))},
        ]


def plan_packing(
    config: NpuConfig,
    channels: int,
    size: tuple[int, int],
    out: tuple[int, int],
    out_channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    pad: tuple[int, int],
    byte_cycles: float = 0.0,
    memory: MemoryTiming = DEFAULT_MEMORY,
) -> PackingPlan | None:
    """Returns the packing with the fewest estimated cycles; None if the plain layout is about as good.

    Args:
        config: the machine.
        channels, out_channels: channels of input and output.
        size, out: input (H, W) and output (OH, OW).
        kernel, stride, dilation, pad: (rows, columns).
        byte_cycles: cycles of the NPU in which the CPU converts a byte; 0 if the CPU's speed is unknown.
        memory: the timing of the NPU's memory.
    """
    block = config.block_in
    kh, kw = kernel
    (oh, ow), (sh, dh) = out, (stride[0], dilation[0])
    out_blocks = -(-out_channels // config.block_out)
    plans = [PackingPlan(channels, kernel, kh, (oh, ow), 1, 1, 0, 1, -pad[0], sh, dh)]
    if kh > 1:
        plans.append(PackingPlan(channels, kernel, 1, (size[0], ow), kh, sh, pad[0], dh, 0, 1, 1))
        if 1 < sh < kh and dh == 1:
            taps = -(-kh // sh)
            plans.append(PackingPlan(channels, kernel, sh, (oh + taps - 1, ow), taps, 1, 0, 1, -pad[0], sh, 1))

    def cycles(blocks: int, taps: int, plane: tuple[int, int]) -> float:
        products = oh * ow * out_blocks * blocks * taps
        nbytes = blocks * block * plane[0] * plane[1]
        data = nbytes / config.bus_bytes * memory.read_interval
        return max(products, data) + 0.05 * (products + data) + byte_cycles * nbytes

    def cost(p: PackingPlan) -> float:
        return cycles(-(-p.packed_channels // block), p.kernel_rows, p.plane)

    best = min(plans, key=cost)
    return best if cost(best) < 0.9 * cycles(-(-channels // block), kh * kw, size) else None


def repack_weights(plan: PackingPlan, weights: np.ndarray) -> np.ndarray:
    """Returns weights [O, C, kh, kw] as [O, packed channels, kernel_rows, 1], with zeros for rows the kernel lacks."""
    o, c, kh, kw = weights.shape
    rows = np.zeros((o, c, plan.kernel_rows * plan.rows, kw), weights.dtype)
    rows[:, :, :kh] = weights
    split = rows.reshape(o, c, plan.kernel_rows, plan.rows, kw)
    return split.transpose(0, 3, 4, 1, 2).reshape(o, plan.rows * kw * c, plan.kernel_rows, 1)
