"""Layer: the interface of the NPU's work, which every kind of layer implements in a file of its own.

Scheduling of layers (residency, fusion, search, emission of a step) uses only the methods of `Layer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Border
from tilewright.compiler.npu.emit.plan import TilePlan, plan_of
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.emit.tile_program import PostFields
from tilewright.compiler.npu.layers.products import Products
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.compiler.npu.views import View
from tilewright.isa.instructions import Rounding

#: Budgets of ACT rows are rounded down to a multiple of this, so that a plan made for one is found again for the next.
_BUDGET_GRAIN = 64


class Add(Struct):
    """An integer Add behind a value.

    Attributes:
        other: view of the other operand.
        constants: fields of VECTOR_ADD, with the value as its first operand.
        low, high: clamp of the sum.
    """

    other: View
    constants: dict[str, int]
    low: int
    high: int


@dataclass
class Post:
    """Operations of VECTOR on a value: requantise (where the source calls for it), add, look up.

    Attributes:
        zp, low, high: zero point and limits of the requantiser; 16-bit limits for 16-bit results.
        rounding: rounding of the requantiser.
        add: fused Add, None for none.
        lut: table of 256 bytes, None for none.
        za, zb: zero points of the two factors of a product.
    """

    zp: int = 0
    low: int = -128
    high: int = 127
    rounding: Rounding = Rounding.EVEN
    add: Add | None = None
    lut: bytes | None = None
    za: int = 0
    zb: int = 0

    @property
    def fields(self) -> PostFields:
        """The fields of VECTOR_POST."""
        low, high = (0, 0) if self.add is None else (self.add.low, self.add.high)
        return PostFields(self.zp, self.low, self.high, low, high, self.za, self.zb)


@dataclass
class Layer(ABC):
    """One node of the model, or several fused, as one pass of the NPU's engines over the output.

    Attributes:
        name, op: name and op for reports.
        inputs: views it reads.
        output: view it writes.
        post: last operations of VECTOR on every value.
        macs: multiply-accumulates of the model's arithmetic.
        products: the products that the array has to compute; None where the model's arithmetic needs none.
        extra_reads: buffers it reads besides the views.
        source: output of the node it was made from, before anything was fused.
    """

    #: The part of the machine that does the arithmetic; "window" is the array's depthwise mode.
    datapath: ClassVar[Literal["array", "window", "vector"]]
    #: True if the last of `plans` is the one of fewest cycles among those whose pools fit the budget.
    cheapest: ClassVar[bool] = False
    #: True if a channel of the output needs only that channel of the inputs, and some can be made without the others.
    by_channel: ClassVar[bool] = False

    #: True if its finished tiles can be added up by the array, see `tilewright.compiler.npu.emit.plane_sums`.
    offers_tiles: ClassVar[bool] = True

    name: str
    op: str
    inputs: list[View]
    output: View
    post: Post
    macs: int = 0
    products: Products | None = None
    extra_reads: list[str] = field(default_factory=list)
    source: str = ""

    # Defined by each kind of layer.

    @abstractmethod
    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterable[TilePlan[Any]]:
        """Yields ways to cut the layer into tiles.

        Args:
            context: the emission.
            budget: rows of ACT the tiles may take.
            span: output rows (first, end) that are made at once, None for all.
            every: True to yield all plans that fit; else the last plan is the one to take.
        """

    @abstractmethod
    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        """Emits the instructions of the layer, or of some rows of its output, by a plan of `plans`."""

    # Overridden by kinds whose output needs other vectors of the input than those at the same place.

    @property
    def fusible(self) -> bool:
        """True if rows of the output can be made a few at a time from rows of the first input."""
        return True

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows (first, end) of the first input, padding included, that output rows `span` need."""
        return span

    def input_border(self) -> tuple[Border, int]:
        """Returns the padding that the layer reads around its first input, and its value."""
        return Border(), 0

    @property
    def summed(self) -> View | None:
        """The input of which the layer needs only plane sums, which the array can make (`emit_summed`), or None."""
        return None

    def emit_summed(self, context: Context, acc: int) -> None:
        """Emits the layer where the sums of its input's planes are in ACC from row `acc` on."""
        raise NotImplementedError

    @property
    def plan_key(self) -> Hashable:
        """A key that is equal for layers with the same plans, wherever their tensors are."""
        return id(self)

    @property
    def recordable(self) -> bool:
        """True if the layer's tile program depends only on its plan and its tensors' places.

        It must put constants into scratchpads by loads alone (`tilewright.compiler.npu.emit.recording`).
        """
        return False

    @property
    def equal_blocks(self) -> bool:
        """True if every channel block of the output is the same amount of work."""
        return True

    @property
    def dense(self) -> bool:
        """True if every result needs all channels of the input."""
        return False

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        """Returns the rows (axis 0) or columns (1) of the first input that the chosen ones of the output need, bool.

        Args:
            axis: 0 or 1.
            outputs: chosen rows or columns of the output, bool.
        """
        x = self.inputs[0]
        size = (x.h, x.w)[axis]
        return outputs if len(outputs) == size else np.ones(size, bool)

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        """Yields the constants to load besides tables: a key that is equal for equal ones, and the least bytes."""
        return ()

    def has_plan(self, context: Context, budget: int) -> bool:
        """Returns True if `plans` gives any."""
        return next(iter(self.plans(context, budget)), None) is not None

    # Common to all kinds.

    @property
    def operands(self) -> list[View]:
        """The views read besides the first input."""
        return [*self.inputs[1:], *([self.post.add.other] if self.post.add is not None else [])]

    @property
    def reads(self) -> list[View]:
        """All views read."""
        return [*self.inputs, *([self.post.add.other] if self.post.add is not None else [])]

    def loads_added(self, context: Context) -> bool:
        """Returns True if the second operand of a fused Add comes from external memory."""
        return self.post.add is not None and not context.on_chip(self.post.add.other)

    def describe(self) -> str:
        """Returns op and name, for reports and messages."""
        return f"{self.op} {self.name}"

    def plan(self, context: Context, budget: int, span: tuple[int, int] | None = None) -> TilePlan[Any]:
        """Returns the plan to take for the layer, or its output rows `span`, within `budget` rows of ACT.

        For all rows it is the tiling that `Context.tiles` asks for if it fits, else the last of `plans`.

        Raises:
            ScratchpadFull: no plan fits.
        """
        budget = _grained(budget)
        where = (context.accumulators.rows, *(context.on_chip(v) for v in (*self.reads, self.output)))
        wanted = context.tiles.get(id(self)) if span in (None, (0, self.output.h)) else None
        what = (self.plan_key, None if span is None else span[1] - span[0], where, wanted)
        key = (what, budget)
        plan = context.plans.get(key)
        if plan is None and self.cheapest and wanted is None:
            plan = context.plans.for_larger_budget(what, budget)
        if plan is None:
            if wanted is not None:
                plan = plan_of(self.plans(context, budget, span, every=True), wanted)
            if plan is None:
                last = deque(() if context.plans.full(what, budget) else self.plans(context, budget, span), maxlen=1)
                if not last:
                    context.plans.keep_full(what, budget)
                    raise ScratchpadFull(f"{self.name}: no tile fits")
                plan = last.pop()
            context.plans.keep(what, budget, plan)
        if span in (None, (0, self.output.h)):
            context.taken[id(self)] = plan
        return plan

    def fits(self, context: Context, budget: int) -> bool:
        """Returns True if there is a plan for the layer within `budget` rows of ACT."""
        return self.has_plan(context, _grained(budget))


def _grained(budget: int) -> int:
    """Returns a budget rounded down to a multiple of `_BUDGET_GRAIN`, unless it is small."""
    return budget // _BUDGET_GRAIN * _BUDGET_GRAIN if budget > 2 * _BUDGET_GRAIN else budget


def readers(layers: Iterable[Layer]) -> dict[str, list[int]]:
    """Returns the numbers of the layers that read each buffer, by the buffer's name."""
    found: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for view in layer.reads:
            found.setdefault(view.buffer, []).append(number)
    return found
