"""`Value`: a tensor of the segment, before its place in memory is decided."""

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
        shape, dtype: shape and type of the tensor.
        buffer: memory, once it has some.
        fn: gives the expression of an element.
        cost: work per element, which decides about fusion.
        acc: the product or the rows whose result it is.
        label: name of its stage.
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
        """New loop variables over the elements."""
        return [Var.new(n) for n in self.shape]


class Accumulator(Protocol):
    """A product, or rows, whose result has not been stored yet: an epilogue can be computed with it."""

    def stage(self, acc: Value, what: Assignment, label: str, target: Target) -> Stage:
        """The kernel that computes it, with `what` as epilogue (`Expr("acc")` of `acc` in its body)."""
