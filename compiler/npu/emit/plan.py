"""Plans: ways to cut a layer into tiles, for every kind of layer."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

Tiling = TypeVar("Tiling", bound=tuple[Any, ...])


class Pools(NamedTuple):
    """ACT rows that a layer's tiles take.

    Attributes:
        input, output, operand: rows of all input, output and second-operand tiles that are in flight.
    """

    input: int
    output: int
    operand: int


class TilePlan(NamedTuple, Generic[Tiling]):
    """One way to cut a layer into tiles.

    Attributes:
        tiling: sizes and order of the tiles, in the fields of the layer's kind; its `str` is for reports.
        pools: ACT rows the tiles take.
        cycles: estimated cycles of the layer; 0.0 where its kind makes no estimate.
    """

    tiling: Tiling
    pools: Pools
    cycles: float = 0.0

    def numbers(self) -> tuple[int, ...]:
        """Returns the tiling as plain numbers, the form in which schedules are saved."""
        return tuple(int(size) for size in self.tiling)


class PlanTable(Generic[Tiling]):
    """Ways to cut a layer into tiles, as columns: there can be thousands.

    Args:
        kind: of tiling, a NamedTuple.
        tilings: for each field of a tiling an array [plans], int64 or bool.
        pools: for each field of `Pools` an array [plans], int64.
        cycles: estimates, float64 [plans].
    """

    def __init__(
        self, kind: type[Tiling], tilings: Sequence[np.ndarray], pools: Sequence[np.ndarray], cycles: np.ndarray
    ) -> None:
        self._kind, self._tilings, self._pools, self.cycles = kind, tilings, pools, cycles

    @staticmethod
    def of(
        kind: type[Tiling],
        tilings: Sequence[np.ndarray],
        pools: Sequence[np.ndarray],
        cycles: np.ndarray,
        chosen: np.ndarray,
    ) -> PlanTable[Tiling]:
        """Returns some plans of a grid, into whose shape all arrays can be broadcast.

        Args:
            kind, tilings, pools, cycles: as of the table.
            chosen: which plans are wanted, bool.
        """
        *columns, cycles, chosen = np.broadcast_arrays(*tilings, *pools, cycles, chosen)
        columns = [column[chosen] for column in columns]
        return PlanTable(kind, columns[: len(tilings)], columns[len(tilings) :], cycles[chosen])

    def __len__(self) -> int:
        return len(self.cycles)

    def __iter__(self) -> Iterator[TilePlan[Tiling]]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> TilePlan[Tiling]:
        tiling = self._kind(*(column[number].item() for column in self._tilings))
        return TilePlan(tiling, Pools(*(column[number].item() for column in self._pools)), self.cycles[number].item())

    def column(self, name: str) -> np.ndarray:
        """Returns a field of all tilings, int64 or bool [plans]."""
        fields: tuple[str, ...] = getattr(self._kind, "_fields")  # noqa: B009 (of every NamedTuple)
        return self._tilings[fields.index(name)]

    @property
    def rows(self) -> np.ndarray:
        """The ACT rows that each plan takes, int64 [plans]."""
        found: np.ndarray = np.sum(self._pools, axis=0)
        return found

    def where(self, chosen: np.ndarray) -> PlanTable[Tiling]:
        """Returns the plans that are True in a bool [plans], or whose numbers are in an int64 [chosen]."""
        tilings, pools = ([column[chosen] for column in columns] for columns in (self._tilings, self._pools))
        return PlanTable(self._kind, tilings, pools, self.cycles[chosen])

    def having(self, tiling: Sequence[int]) -> PlanTable[Tiling]:
        """Returns the plans with a tiling, given as plain numbers."""
        return self.where(np.all([column == size for column, size in zip(self._tilings, tiling, strict=True)], axis=0))

    def cheapest_first(self) -> PlanTable[Tiling]:
        """Returns the plans in the order of their estimates; those of equal ones stay in order."""
        return self.where(np.argsort(self.cycles, kind="stable"))

    def cheaper_and_cheaper(self) -> PlanTable[Tiling]:
        """Returns the plans that are estimated to take fewer cycles than every plan before them."""
        before = np.minimum.accumulate(np.concatenate([[np.inf], self.cycles]))[:-1]
        return self.where(self.cycles < before)


def cheapest_plans(plans: Iterable[TilePlan[Tiling]], count: int) -> list[TilePlan[Tiling]]:
    """Returns so many of the plans, those with the smallest estimates, in the order of these."""
    if isinstance(plans, PlanTable):
        return [*itertools.islice(plans.cheapest_first(), count)]
    return heapq.nsmallest(count, plans, key=attrgetter("cycles"))


def plan_of(plans: Iterable[TilePlan[Tiling]], tiling: Sequence[int]) -> TilePlan[Tiling] | None:
    """Returns the plan of a tiling, given as plain numbers; None where there is none."""
    if isinstance(plans, PlanTable):
        plans = plans.having(tiling)
    return next((plan for plan in plans if plan.numbers() == tiling), None)


class BandedWork(NamedTuple):
    """The work of fused layers with some number of rows per band.

    Attributes:
        step: rows of the last output per band.
        compute: cycles in which GEMM and VECTOR of one layer overlap, of all layers and bands.
        drained: cycles at the end of each layer and band in which only one of both works.
        serial: cycles in which all engines of one layer overlap, but not those of several layers.
        bus: cycles of LOAD or STORE, whichever takes longer.
    """

    step: int
    compute: int
    drained: int
    serial: int
    bus: int


class TilePlans(dict[Hashable, TilePlan[Any]]):
    """The plans found so far, by layer, height and tensors on the chip.

    Attributes:
        memory: the memory timing they are made for.
        alone, banded: estimated cycles of single layers and work of groups, by the shapes of the layers and the tensors
            on the chip: layers of one shape are estimated once.
        by_channel: the way groups run by channels, by the same key.
        shapes: shapes of layers by `id`, see `tilewright.compiler.npu.schedule.shape`.
        recorded, recorded_numbers: recorded tile programs, see `tilewright.compiler.npu.emit.recording`, and the
            numbers in all of them.
        measured, simulated: measured costs of units of layers, by the cost function and the layers' shapes, see
            `tilewright.compiler.npu.schedule.problem`, and the instructions of all that were measured.
        counted: work of layers that are only counted, see `tilewright.compiler.npu.schedule.counting`.
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
        self.measured: dict[Hashable, Any] = {}
        self.simulated = 0
        self.counted: dict[Hashable, Any] = {}
        self._searched: dict[Hashable, list[tuple[int, TilePlan[Any]]]] = {}
        self._full: dict[Hashable, int] = {}

    def keep(self, what: Hashable, budget: int, plan: TilePlan[Any]) -> None:
        """Adds the plan of a layer for a budget of ACT rows.

        Args:
            what: key of the layer and its circumstances, see `Layer.plan`.
            budget: rows of ACT.
            plan: the plan.
        """
        self[what, budget] = plan
        self._searched.setdefault(what, []).append((budget, plan))

    def keep_full(self, what: Hashable, budget: int) -> None:
        """Notes that no plan of a layer (`what`) fits a budget of ACT rows."""
        self._full[what] = max(budget, self._full.get(what, -1))

    def full(self, what: Hashable, budget: int) -> bool:
        """Returns True if no plan of a layer (`what`) fits a budget of ACT rows, as far as that was noted."""
        return budget <= self._full.get(what, -1)

    def for_larger_budget(self, what: Hashable, budget: int) -> TilePlan[Any] | None:
        """Returns a plan found for a larger budget of ACT rows that takes no more than `budget`; None if there is none.

        A plan that is the best of all within the larger budget is the best within the smaller one too.
        """
        for more, plan in self._searched.get(what, ()):
            if more >= budget >= sum(plan.pools):
                return plan
        return None
