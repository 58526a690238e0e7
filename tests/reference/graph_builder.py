"""Builds quantised graphs, operator by operator, with values that later ones may take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import onnx

from tests.reference.quantized_models import Model

MOST_ELEMENTS = 4000


SCALES = (0.05, 0.02, 0.1, 0.03, 0.25, 0.125, 1 / 64, 1.0, 0.0078125, 1 / 255, 1 / 256, 0.04, 0.015, 2.0)


@dataclass(frozen=True)
class Value:
    """A dequantised tensor.

    Attributes:
        integers: the tensor in front of its DequantizeLinear.
    """

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    integers: str

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class QuantizedGraph:
    """A model with inputs for it."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]


class NoOperand(Exception):
    """The graph has no tensor that an op could take."""


@dataclass
class Builder:
    """A graph being built."""

    random: Random
    model: Model
    values: list[Value] = field(default_factory=list)
    mixed: bool = False

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value:
        found = [v for v in self.values if fits(v)]
        if not found:
            raise NoOperand
        return self.random.choice(found[-3:])

    def zero(self) -> int:
        """A zero point, both ends and the middle more often."""
        info = np.iinfo(self.model.dtype)
        middle = (int(info.min) + int(info.max) + 1) // 2
        return self.random.choice(
            (info.min, info.max, middle, middle, middle + 1, self.random.randint(info.min, info.max))
        )

    def scale(self, natural: float, *related: float) -> float:
        """A scale near what the values need: a related one, a power of two, one of few digits, any."""
        near = [s * k for s in (*related, *SCALES) for k in (0.5, 1, 1.5, 2, 4) if natural / 3 <= s * k <= natural * 3]
        kind = self.random.randrange(8)
        if kind < 4 and near:
            chosen = self.random.choice(near)
        elif kind < 6:
            chosen = 2.0 ** round(math.log2(natural))
        elif kind == 6:
            chosen = natural * math.exp(self.random.uniform(-1, 1))
        else:
            chosen = natural * self.random.choice((1e-3, 0.05, 20, 1e3))
        if not 1e-30 < chosen < 1e30:
            raise NoOperand
        return float(np.float32(chosen))

    def input(self, shape: tuple[int, ...]) -> Value:
        scale, zero = float(np.float32(self.random.choice((*SCALES, 1e-4, 1e4)))), self.zero()
        name = self.model.input(shape, scale, zero)
        return self.keep(name, shape, scale, zero)

    def keep(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> Value:
        value = Value(name, tuple(shape), scale, zero, self.model.nodes[-1].input[0])
        self.values.append(value)
        return value

    def partner(self, x: Value) -> Value:
        """A tensor to go with `x`: itself, another of its shape, a new input, or a constant, perhaps broadcast."""
        kind = self.random.randrange(8)
        if kind == 0:
            return x
        same = [v for v in self.values if v.shape == x.shape and v is not x]
        if kind < 5 and same:
            return self.random.choice(same)
        shapes = [x.shape, (), (x.shape[-1],)]
        if x.rank == 4:
            shapes += [(1, x.shape[1], 1, 1), (x.shape[0], x.shape[1], 1, 1)]
        shape = self.random.choice(shapes)
        if shape and kind < 7:
            return self.input(shape)
        scale, zero = self.scale(x.scale, x.scale), self.zero()
        info = np.iinfo(self.model.dtype)
        m = self.model
        data = m.const(m.rng.integers(info.min, info.max + 1, size=shape), m.dtype)
        name = m.op("DequantizeLinear", data, m.const(scale, np.float32), m.const(zero, m.dtype))
        return Value(name, shape, scale, zero, data)

    def finish(self, y: str, shape: tuple[int, ...], scale: float, *related: float, natural: bool = False) -> Value:
        """Perhaps an activation, then QuantizeLinear and DequantizeLinear; sometimes twice from one tensor.

        Args:
            scale: what the values need about.
            natural: keep `scale` and do not draw another.
        """
        m, r = self.model, self.random
        if math.prod(shape) > MOST_ELEMENTS:
            raise NoOperand
        chosen = scale if natural else self.scale(scale, *related)
        activation = r.randrange(8)
        if activation == 0 or activation == 1:
            y = m.op("Relu", y)
        elif activation == 2:
            low, high = sorted((r.choice((-1e6, 0.0, -chosen * 20)), r.choice((1e6, 6.0, chosen * 90))))
            y = m.op("Clip", y, m.const(low, np.float32), m.const(high, np.float32))
        before = m.dtype
        if self.mixed and r.random() < 0.15:
            m.dtype = np.dtype(np.int8 if before == np.uint8 else np.uint8)
        zero = self.zero()
        if activation < 2 and r.random() < 0.5:
            zero = int(np.iinfo(m.dtype).min)
        made = self.keep(m.requantized(y, chosen, zero), shape, chosen, zero)
        if r.random() < 0.06:
            other = self.scale(scale)
            made = self.keep(m.requantized(y, other, zero), shape, other, zero)
        m.dtype = before
        return made
