"""The quantised graph as plain data, which is all the checker gets of the compiler, and what stops a proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.common.errors import TilewrightError


class NoRule(TilewrightError):
    """An operator, an instruction or a form of one that this prover has no rule for: nothing is proved."""


class Finding(TilewrightError):
    """Something that is wrong with the program whatever it computes: a race, an access outside, a missing signal."""


@dataclass(frozen=True)
class Value:
    """A tensor.

    Attributes:
        shape, dtype: as numpy has them.
        data: of a constant, else None.
        scale, zero_point: float32 and int32, () or one per channel; None for a tensor without quantisation.
        axis: axis of the channels, None per tensor.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data: np.ndarray | None = None
    scale: Any = None
    zero_point: Any = None
    axis: int | None = None

    @property
    def shift(self) -> int:
        """The number subtracted where the machine stores the value: 128 for uint8."""
        return 128 if self.dtype == np.uint8 else 0

    @property
    def stored_zero_point(self) -> int:
        return int(self.zero_point) - self.shift


@dataclass(frozen=True)
class Step:
    """A node: an operator with its operands, results and attributes. Missing operands are ""."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class QuantisedGraph:
    """A network: nodes in an order in which operands are made before they are read.

    Attributes:
        values: tensors by name.
        work: nodes of the CPU steps of the program, by number of the step: conversions between layouts among them.
        work_values: the tensors of these, by name: what the compiler knows of them.
        inputs, outputs: states among them.
        states: the input and the output of each, and what the first run begins with, by its name in the program.
    """

    values: Mapping[str, Value]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    work: Mapping[int, tuple[Step, ...]] = field(default_factory=dict)
    work_values: Mapping[str, Value] = field(default_factory=dict)
    states: Mapping[str, tuple[str, str, np.ndarray]] = field(default_factory=dict)
