"""The recipe of a quantised model: the float model, ranges of tensors, the precision of each layer, weights."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import onnx

from tilewright.quantize.layers import Network

Sample = dict[str, np.ndarray]
"""The inputs of one run, by name, as the model takes them."""

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done."""


class Samples(Protocol):
    """Calibration data: inputs of single runs, read one at a time, as often as wanted."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def __iter__(self) -> Iterator[Sample]: ...


@dataclass(frozen=True)
class Range:
    """Lowest and highest value that a tensor's quantisation has to hold; values outside saturate."""

    low: float
    high: float

    def with_zero(self) -> Range:
        """The range that holds 0 too: every quantised tensor must have it exactly."""
        return Range(min(self.low, 0.0), max(self.high, 0.0))

    def union(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


class Precision(enum.Enum):
    """Precision of a layer: 8-bit activations (on the NPU), 16-bit ones, or floats."""

    INT8 = "int8"
    INT16 = "int16"
    FLOAT = "float"


@dataclass(frozen=True)
class Weights:
    """Fitted weights of a product, in place of the float model's or the integers nearest to them.

    Attributes:
        values: of the float weights' shape: int8 within -127..127, or float32 for a layer that stays in floats.
        scale: of integers: float32, [] for one scale or [channels] for one per output channel; the zero point is 0.
        bias: in place of the float model's, float32 of its shape; None leaves that.
    """

    values: np.ndarray
    scale: np.ndarray | None
    bias: np.ndarray | None = None


@dataclass
class Recipe:
    """Everything that `writing.write` needs.

    Attributes:
        model: the prepared float model (see `prepare.prepare`). Each Conv, ConvTranspose, Gemm and MatMul has weights
            and bias of its own.
        ranges: of float tensors, by name; all that `layers.tensors_to_observe` lists.
        precision: of layers, by `Layer.name`; INT8 where there is none.
        weights: of layers, by `Layer.name`, where they are of the kind that the layer's precision wants; others are
            rounded to the nearest, or those of the float model.
        activation: "int8" or "uint8", for layers of precision INT8.
        per_channel: one scale per output channel of weights.
        limit: greatest absolute value of weights of products, 127 or 7; see `writing.limit_of`.
        written: the quantised model, where another quantiser has written it; all else then says what it is like.
    """

    model: onnx.ModelProto
    ranges: dict[str, Range] = field(default_factory=dict)
    precision: dict[str, Precision] = field(default_factory=dict)
    weights: dict[str, Weights] = field(default_factory=dict)
    activation: str = "int8"
    per_channel: bool = True
    limit: int = 127
    written: onnx.ModelProto | None = None
    _networks: dict[tuple[int, int], Network] = field(default_factory=dict, repr=False, compare=False)

    @property
    def network(self) -> Network:
        """The model's network, made once for all recipes that come of this one."""
        key = id(self.model), len(self.model.graph.output)  # `classes.extra_outputs` come and go
        if key not in self._networks:
            self._networks[key] = Network(self.model)
        return self._networks[key]

    def precision_of(self, layer: str) -> Precision:
        return self.precision.get(layer, Precision.INT8)

    def with_precision(self, precision: Mapping[str, Precision]) -> Recipe:
        """Returns this recipe with other precisions."""
        return replace(self, precision=dict(precision), written=None)
