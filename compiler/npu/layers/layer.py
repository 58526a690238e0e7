"""Layer: the interface of the NPU's work, which every kind of layer implements in a file of its own.

Whatever schedules layers (residency, fusion, search, emission of a step) knows only the methods of `Layer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

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


@dataclass
class Add:
    """Integer Add with operand `other`, constants of VECTOR_ADD (already in operand order v, other)."""

    other: View
    constants: dict[str, int]
    low: int
    high: int


@dataclass
class Post:
    """Operations of VECTOR on a value: requantise (where the source calls for it), add, look up.

    Attributes:
        zp, low, high: values of the requantiser, limits of 16 bits where the result has them.
        add: fused Add, None for none.
        lut: 256 bytes, None for none.
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
        """Values for VECTOR_POST."""
        low, high = (0, 0) if self.add is None else (self.add.low, self.add.high)
        return PostFields(self.zp, self.low, self.high, low, high, self.za, self.zb)


@dataclass
class Layer(ABC):
    """One or several fused nodes of the model, as one pass of the NPU's engines over the output.

    Attributes:
        name, op: for reports.
        inputs: views read, output: view written.
        post: what VECTOR does to every value last.
        macs: of the model's arithmetic.
        products: what the array has to do; None where it does nothing for the model's arithmetic.
        extra_reads: buffers read besides the views.
        source: output of the node it was made from, before anything was fused.
    """

    #: The part of the machine that does the arithmetic; "window" is the array's depthwise mode.
    datapath: ClassVar[Literal["array", "window", "vector"]]
    #: True if the last of `plans` is the one of fewest cycles among those whose pools fit the budget.
    cheapest: ClassVar[bool] = False
    #: True if a channel of the output needs only that channel of the inputs, and some can be made without the others.
    by_channel: ClassVar[bool] = False

    name: str
    op: str
    inputs: list[View]
    output: View
    post: Post
    macs: int = 0
    products: Products | None = None
    extra_reads: list[str] = field(default_factory=list)
    source: str = ""

    # What each kind of layer must say.

    @abstractmethod
    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterable[TilePlan[Any]]:
        """Ways to cut the layer into tiles.

        Args:
            budget: rows of ACT the tiles may take.
            span: output rows (first, end) that are made at once, None for all.
            every: give all plans that fit; else the last plan given is the one to take.
        """

    @abstractmethod
    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        """Emits the instructions of the layer, or of some rows of its output, by a plan of `plans`."""

    # What a kind says where it differs from a layer that reads what it writes, vector by vector.

    @property
    def fusible(self) -> bool:
        """True if rows of the output can be made a few at a time from rows of the first input."""
        return True

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        """Rows (first, end) of the first input, padding included, that output rows `span` need."""
        return span

    def input_border(self) -> tuple[Border, int]:
        """Padding the layer reads around its first input, and the value it has to have."""
        return Border(), 0

    @property
    def summed(self) -> View | None:
        """The input of which only the sums over its planes count, if it is one that the array can make while the input
        is made (`emit_summed`)."""
        return None

    def emit_summed(self, context: Context, acc: int) -> None:
        """Emits the layer where the sums of its input's planes are in ACC from row `acc` on."""
        raise NotImplementedError

    @property
    def plan_key(self) -> Hashable:
        """Equal for layers that have the same plans wherever their tensors are."""
        return id(self)

    @property
    def recordable(self) -> bool:
        """True if what the layer writes depends on nothing but its plan and the places of its tensors, and it puts
        constants into scratchpads by loads alone (`tilewright.compiler.npu.emit.recording`)."""
        return False

    @property
    def equal_blocks(self) -> bool:
        """True if every block of channels of the output is as much work."""
        return True

    @property
    def dense(self) -> bool:
        """True if every result needs all channels of the input."""
        return False

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        """Returns the rows (axis 0) or columns (1) of the first input that chosen ones of the output need (both
        bool)."""
        x = self.inputs[0]
        size = (x.h, x.w)[axis]
        return outputs if len(outputs) == size else np.ones(size, bool)

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        """Yields the constants to load besides tables: for each part a key that is equal for equal ones, and its least
        bytes."""
        return ()

    def has_plan(self, context: Context, budget: int) -> bool:
        """True if `plans` gives any."""
        return next(iter(self.plans(context, budget)), None) is not None

    # What holds for every kind.

    @property
    def operands(self) -> list[View]:
        """Views read besides the first input."""
        return [*self.inputs[1:], *([self.post.add.other] if self.post.add is not None else [])]

    @property
    def reads(self) -> list[View]:
        """All views read."""
        return [*self.inputs, *([self.post.add.other] if self.post.add is not None else [])]

    def loads_added(self, context: Context) -> bool:
        """True if the second operand of a fused Add comes from memory."""
        return self.post.add is not None and not context.on_chip(self.post.add.other)

    def describe(self) -> str:
        """Op and name, for reports and messages."""
        return f"{self.op} {self.name}"

    def plan(self, context: Context, budget: int, span: tuple[int, int] | None = None) -> TilePlan[Any]:
        """The plan to take for the layer (or its output rows `span`) within `budget` rows of ACT: for all rows the
        tiling that `Context.tiles` asks for if it fits, else the last of `plans`.

        Raises:
            ScratchpadFull: nothing fits.
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
                last = deque(self.plans(context, budget, span), maxlen=1)
                if not last:
                    raise ScratchpadFull(f"{self.name}: no tile fits")
                plan = last.pop()
            context.plans.keep(what, budget, plan)
        return plan

    def fits(self, context: Context, budget: int) -> bool:
        """True if there is a plan for the layer within `budget` rows of ACT."""
        return self.has_plan(context, _grained(budget))


def _grained(budget: int) -> int:
    return budget // _BUDGET_GRAIN * _BUDGET_GRAIN if budget > 2 * _BUDGET_GRAIN else budget


def readers(layers: Iterable[Layer]) -> dict[str, list[int]]:
    """Numbers of the layers that read each buffer."""
    found: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        for view in layer.reads:
            found.setdefault(view.buffer, []).append(number)
    return found
