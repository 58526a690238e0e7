"""A plan: one way to cut a layer into tiles, whatever the kind of layer."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

Tiling = TypeVar("Tiling", bound=tuple[Any, ...])


class Pools(NamedTuple):
    """ACT rows that a layer's tiles take: inputs, outputs and second operands, as many of each as are in flight."""

    input: int
    output: int
    operand: int


class TilePlan(NamedTuple, Generic[Tiling]):
    """One way to cut a layer into tiles.

    Attributes:
        tiling: sizes of a tile and the order of tiles, by the names of the layer's kind. `str` of it is for reports.
        pools: ACT rows the tiles take.
        cycles: estimate for the layer, 0.0 where its kind makes none.
    """

    tiling: Tiling
    pools: Pools
    cycles: float = 0.0

    def numbers(self) -> tuple[int, ...]:
        """The tiling as plain numbers, as a kept schedule has them."""
        return tuple(int(size) for size in self.tiling)


class BandedWork(NamedTuple):
    """The work of fused layers with some number of rows per band.

    Attributes:
        step: rows of the last output per band.
        compute: cycles of GEMM or VECTOR, whichever takes longer, of all layers and bands.
        drained: of these, what the other of the two would take for the last tiles.
        serial: as `compute`, of all four engines.
        bus: cycles of LOAD or STORE.
    """

    step: int
    compute: int
    drained: int
    serial: int
    bus: int


class TilePlans(dict[Hashable, TilePlan[Any]]):
    """Plans found so far, by layer, height and what is on the chip.

    Attributes:
        memory: that they are made for.
        alone, banded: estimated cycles of single layers and work of groups, by the shape of the layers and what is on
            the chip: layers of one shape are looked at once.
        by_channel: how groups run by channels, by the same.
        shapes: of layers, by `id`, see `tilewright.compiler.npu.schedule.shape`.
        recorded, recorded_numbers: tile programs of layers, see `tilewright.compiler.npu.emit.recording`, and how many
            numbers they have.
        counted: work of layers where nothing is emitted, see `tilewright.compiler.npu.schedule.counting`.
    """

    def __init__(self, memory: MemoryTiming = DEFAULT_MEMORY) -> None:
        super().__init__()
        self.memory = memory
        self.alone: dict[Hashable, float] = {}
        self.banded: dict[Hashable, list[BandedWork]] = {}
        self.by_channel: dict[Hashable, Any] = {}
        self.shapes: dict[int, Any] = {}
        self.recorded: dict[Hashable, Any] = {}
        self.recorded_numbers = 0
        self.counted: dict[Hashable, Any] = {}
        self._searched: dict[Hashable, list[tuple[int, TilePlan[Any]]]] = {}

    def keep(self, what: Hashable, budget: int, plan: TilePlan[Any]) -> None:
        """Adds the plan of a layer (`what`) for a budget of ACT rows."""
        self[what, budget] = plan
        self._searched.setdefault(what, []).append((budget, plan))

    def of_more(self, what: Hashable, budget: int) -> TilePlan[Any] | None:
        """A plan found for more rows that takes no more than these: where it is the best of more plans, it is the best
        of fewer."""
        for more, plan in self._searched.get(what, ()):
            if more >= budget >= sum(plan.pools):
                return plan
        return None
