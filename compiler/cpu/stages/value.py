"""`Value`: a tensor of the segment, before it is decided where it lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.compiler.cpu.expr import Assignment, Buffer, Expr, Index, Var
from tilewright.compiler.cpu.stages.stage import Stage
from tilewright.compiler.cpu.target import Target

ElementFn = Callable[[list[Index]], Expr]


@dataclass(eq=False)
class Value:
    """A tensor during fusion: in a buffer, or computed by `fn`, or the result of `acc`.

    Attributes:
        shape, dtype: of the tensor.
        buffer: memory, once it has some.
        fn: gives the expression of an element.
        cost: work per element, which decides about fusion.
        acc: the product or the rows that it is the result of.
        label: what its stage is called.
    """

    shape: tuple[int, ...]
    dtype: str
    buffer: Buffer | None = None
    fn: ElementFn | None = None
    cost: int = 0
    acc: Accumulator | None = None
    label: str = ""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def rank(self) -> int:
        return len(self.shape)

    def vars(self) -> list[Var]:
        """New loop variables over its elements."""
        return [Var.new(n) for n in self.shape]


class Accumulator(Protocol):
    """A product, or rows, whose result has not been stored yet: what follows can be computed with it."""

    def stage(self, acc: Value, what: Assignment, label: str, target: Target) -> Stage:
        """The kernel that computes it, and `what` is to be computed from it (`Expr("acc")` of `acc` in its body)."""
