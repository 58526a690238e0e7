"""The base classes of quantised ops, and the registry of all ops.

An instance of a subclass is the op of one node with its attributes. Operands and results are int8 or uint8 tensors with
a `Quant`, except where the class is documented otherwise; shapes are ONNX's (NCHW, NCW, rows of K). Every op has one
result.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.compiler.graph.tensor import EIGHT_BIT, Tensor

#: A reason of results that may be off by a step wherever the machine makes them, outputs of the model among them.
ROUNDS_TWICE = "LiteRT's builtin kernel rounds twice"
#: A reason of results computed from a tensor that may be off, and is none of the model's.
BEHIND = "computed from one that can be off"

Operands = Sequence[Tensor | None]
C = TypeVar("C", bound="Clamped")


@dataclass(frozen=True, kw_only=True)
class QuantizedOp:
    """An op that computes integers by the rules of `tilewright.isa.numerics`, with its attributes.

    A subclass is a frozen dataclass. Its name is the op's name everywhere; defining it enters it in `QUANTIZED_OPS`.

    Attributes:
        reason: the reason why the reference's rule is another one, so that results may be off by a step; empty if they
            may not.
    """

    name: ClassVar[str]
    arity: ClassVar[tuple[int, int]] = (1, 1)
    """The least and the largest number of operands."""

    reason: str = ""

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__()
        if not abstract:
            cls.name = cls.__name__
            QUANTIZED_OPS[cls.name] = cls

    def check(self, operands: Operands, result: Tensor) -> str | None:
        """The error in the attributes or the types of the tensors, None if there is none. Subclasses add to it."""
        least, most = self.arity
        given = [t for t in operands if t is not None]
        if not least <= len(given) <= most or None in operands[:least]:
            return f"{len(given)} operands; {least if least == most else f'{least} to {most}'} are needed"
        return self.activation_error(given[0]) or self.activation_error(result)

    def activation_error(self, tensor: Tensor) -> str | None:
        """The reason why a tensor is no activation of the op, None if it is one."""
        return activation_error(tensor)

    def macs(self, operands: Operands, result: Tensor) -> int:
        """The multiply-accumulates of the op, for the reports."""
        return 0

    def attributes(self) -> list[tuple[str, str]]:
        """The names and printed values of the attributes that differ from their defaults."""
        pairs = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        return sorted((name, _short(value)) for name, value, default in pairs if value != default)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v}' for k, v in self.attributes())})"


QUANTIZED_OPS: dict[str, type[QuantizedOp]] = {}
"""The quantised ops by name."""


@dataclass(frozen=True, kw_only=True)
class Clamped(QuantizedOp, abstract=True):
    """An op whose result can be clamped: a fused activation.

    Attributes:
        out_min, out_max: bounds in the output's own quantised units; the defaults are no narrower than either type.
    """

    out_min: int = -128
    out_max: int = 255

    def limits(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """The clamp within the range of the result's type."""
        info = np.iinfo(dtype)
        return max(int(info.min), self.out_min), min(int(info.max), self.out_max)

    def clamped(self: C, low: int, high: int) -> C:
        """The op with its results clamped once more."""
        return replace(self, out_min=min(max(self.out_min, low), high), out_max=min(max(self.out_max, low), high))


@dataclass(frozen=True, kw_only=True)
class Windowed(QuantizedOp, abstract=True):
    """An op that slides a window over the spatial axes; one value per axis.

    Attributes:
        kernel: size of the window.
        strides, dilations: 1 where they are not given.
        pads: all begins, then all ends; 0 where they are not given.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rank = len(self.kernel)
        given = {"kernel": self.kernel, "strides": self.strides or (1,) * rank, "pads": self.pads or (0,) * 2 * rank}
        for key, values in {**given, "dilations": self.dilations or (1,) * rank}.items():
            object.__setattr__(self, key, tuple(int(v) for v in values))

    def check(self, operands: Operands, result: Tensor) -> str | None:
        rank = len(self.kernel)
        if (len(self.strides), len(self.pads), len(self.dilations)) != (rank, 2 * rank, rank):
            return f"window of rank {rank} with strides {self.strides}, pads {self.pads}, dilations {self.dilations}"
        if min((*self.kernel, *self.strides, *self.dilations), default=1) < 1:
            return f"kernel {self.kernel}, strides {self.strides} and dilations {self.dilations} must be at least 1"
        error = super().check(operands, result)
        if error is None and operands[0] is not None and len(operands[0].shape) != rank + 2:
            error = f"window of rank {rank} on {operands[0].name} {list(operands[0].shape)}"
        return error

    def positions(self, spatial: Iterable[int]) -> tuple[int, ...]:
        """The number of positions of the window along each axis."""
        rank, counts = len(self.kernel), []
        for i, n in enumerate(spatial):
            reach = (self.kernel[i] - 1) * self.dilations[i] + 1
            counts.append((n + self.pads[i] + self.pads[rank + i] - reach) // self.strides[i] + 1)
        return tuple(counts)


@dataclass(frozen=True, kw_only=True)
class Unchanged(QuantizedOp, abstract=True):
    """An op whose result has the type and the quantisation of its operand."""

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        x = operands[0]
        if error is not None or x is None:
            return error
        if x.dtype != result.dtype or x.quant is None or not x.quant.same_as(result.quant):
            return f"{result.name} has another type or quantisation than {x.name}"
        return self.check_shapes(x, result)

    @abstractmethod
    def check_shapes(self, x: Tensor, result: Tensor) -> str | None:
        """The error in the attributes for these shapes, None if there is none."""


@dataclass(frozen=True, kw_only=True)
class Weighted(QuantizedOp, abstract=True):
    """A product of an operand x by weights, with an optional bias."""

    arity = (2, 3)

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        x, w, bias = (*operands, None, None)[:3]
        return error if error is not None or x is None or w is None else self.check_product(x, w, bias, result)

    @abstractmethod
    def check_product(self, x: Tensor, w: Tensor, bias: Tensor | None, result: Tensor) -> str | None:
        """The error in the attributes for these operands, None if there is none."""


def activation_error(tensor: Tensor) -> str | None:
    """The reason why a tensor is no 8-bit activation with one scale, None if it is one."""
    if tensor.dtype not in EIGHT_BIT:
        return f"{tensor.name} is {tensor.dtype}, not int8 or uint8"
    if tensor.quant is None or not tensor.quant.per_tensor:
        return f"{tensor.name} has no quantisation with one scale"
    return None


def weights_error(tensor: Tensor | None, bias: Tensor | None, channels: int) -> str | None:
    """The reason why constant weights or bias do not fit a product with these output channels, None if they do."""
    if tensor is None or tensor.dtype not in EIGHT_BIT or tensor.quant is None:
        return "weights are not int8 or uint8 with a scale"
    if bias is not None and (bias.dtype != np.int32 or bias.shape != (channels,)):
        return f"bias {bias.name} is {bias.dtype}{list(bias.shape)}, not int32[{channels}]"
    return None


def shape_error(result: Tensor, shape: Sequence[int]) -> str | None:
    return None if result.shape == tuple(shape) else f"{result.name} is {list(result.shape)}, not {list(shape)}"


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, tuple):
        return f"[{', '.join(_short(v) for v in value)}]"
    return str(value)
