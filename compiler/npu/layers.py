"""What the NPU is asked to do: layers over views, free of tiling and instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from compiler.npu.views import View
from isa.instructions import Rounding


@dataclass
class Add:
    """Integer Add with operand `other`, constants of VECTOR_ADD (already in operand order v, other)."""

    other: View
    constants: dict[str, int]
    low: int
    high: int


@dataclass
class Post:
    """What VECTOR does to a value: requantise (where the source calls for it), add, look up.

    Attributes:
        zp, low, high: int8 values of the requantiser.
        add: fused Add, None for none.
        lut: 256 bytes, None for none.
    """

    zp: int = 0
    low: int = -128
    high: int = 127
    rounding: Rounding = Rounding.EVEN
    add: Add | None = None
    lut: bytes | None = None
    za: int = 0
    zb: int = 0

    def fields(self) -> dict[str, int]:
        """Values for VECTOR_POST."""
        values = {"zp": self.zp, "lo": self.low, "hi": self.high, "za": self.za, "zb": self.zb}
        if self.add is not None:
            values |= {"add_lo": self.add.low, "add_hi": self.add.high}
        return values


@dataclass
class Phase:
    """One regular convolution: input row of tap ky at output index q is q*stride - pad + ky*dilation.

    Attributes:
        weights: int8 [sets, O, C/group, kh, kw]; the sets add up (a zero point that does not fit one set).
        pad, stride, dilation: (rows, columns).
        out_step, out_start: output row is q*out_step + out_start (transposed convolutions interleave phases).
    """

    weights: np.ndarray
    pad: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    out_step: tuple[int, int] = (1, 1)
    out_start: tuple[int, int] = (0, 0)

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weights.shape[3], self.weights.shape[4]

    @property
    def extent(self) -> tuple[int, int]:
        """Input rows and columns one output needs."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))  # type: ignore[return-value]

    def outputs(self, axis: int, size: int) -> int:
        """Values of q along `axis` for an output of `size`."""
        return -(-(size - self.out_start[axis]) // self.out_step[axis])


@dataclass
class DynamicWeights:
    """Weights made at run time by the CPU: per batch item [OB][KB] tiles and PRM rows, in the arena.

    Attributes:
        tiles, params: buffer names.
        offset: value of all constant tiles that stand for the zero point of the second operand (0 = none).
    """

    tiles: str
    params: str
    k: int
    zero_point: int


@dataclass
class Layer:
    """One or several fused nodes of the model.

    Attributes:
        name, op: for reports.
        inputs: views read, output: view written.
        macs: of the model's arithmetic.
    """

    name: str
    op: str
    inputs: list[View]
    output: View
    post: Post
    macs: int = 0
    tile: str = ""
    extra_reads: list[str] = field(default_factory=list)  # buffers read besides the views
    source: str = ""  # output of the node it was made from, before anything was fused


@dataclass
class ConvLayer(Layer):
    """Convolution or matrix product on the array. `fill` is the input zero point; bias int32 and scale float32 [O]."""

    phases: list[Phase] = field(default_factory=list)
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    group: int = 1
    fill: int = 0
    dynamic: DynamicWeights | None = None


@dataclass
class DepthwiseLayer(Layer):
    """Depthwise convolution (multiplier 1) in the array's window mode; weights int8 [C, kh, kw]."""

    weights: np.ndarray = field(default_factory=lambda: np.zeros((0, 1, 1), np.int8))
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    fill: int = 0


@dataclass
class ElementLayer(Layer):
    """Element by element on VECTOR: a copy or table (one input), Add or Mul (two; a broadcast axis has size 1).
    Mul takes one `scale` for all lanes."""

    kind: str = "copy"
    scale: np.float32 = field(default_factory=lambda: np.float32(1))


@dataclass
class MaxPoolLayer(Layer):
    """Maximum over windows; padding never wins."""

    kernel: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)


@dataclass
class MeanLayer(Layer):
    """Mean over whole planes by VECTOR's SUM; one bias and one scale for all lanes."""

    bias: int = 0
    scale: np.float32 = field(default_factory=lambda: np.float32(1))
