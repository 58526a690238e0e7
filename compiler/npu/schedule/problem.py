"""StepProblem: an NPU step for which a schedule is searched, and the cost of its schedules."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec import structs

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.assembler import AssemblyError
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.layers.layer import Layer, readers
from tilewright.compiler.npu.schedule.bands import LayerGroup, group_of
from tilewright.compiler.npu.schedule.channels import channel_group
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.residency import Stay, outside_groups, resident_candidates
from tilewright.compiler.npu.schedule.shape import together
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine
from tilewright.isa.program import CONSTANT_REGION
from tilewright.isa.timing import MemoryTiming

#: Bytes for buffers without a view, and for reads behind a view: rows of operands are padded to tiles.
_BEYOND = 1 << 20
#: (configuration, instruction image, arena bytes) -> exact cycles, or whatever else is to be small. A program that the
#: machine stops is a `DeviceError`.
Measure = Callable[[NpuConfig, bytes, int], float]


@dataclass
class Schedule:
    """The schedule of one NPU step: the tensors that stay in ACT, and the layers that run together.

    Attributes:
        stays: the tensors that stay, without those between the layers of a group.
        units: groups of layers in order, every layer in one of them.
        tiles: tilings of layers, by number, where they are not those that the layer's plans prefer.
    """

    stays: list[Stay]
    units: list[LayerGroup]
    tiles: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stays = outside_groups(self.stays, self.units)

    def starts(self) -> list[int]:
        """Returns the number of each unit's first layer, and of the layer after the last."""
        return list(itertools.accumulate((len(unit.layers) for unit in self.units), initial=0))

    @staticmethod
    def plain(layers: list[Layer]) -> Schedule:
        """Returns the schedule with every layer alone and nothing that stays in ACT."""
        return Schedule([], [LayerGroup((layer,)) for layer in layers])

    def use_tiles(self, context: Context, layers: list[Layer]) -> None:
        """Makes the emission of these layers use the schedule's tiles."""
        context.tiles |= {id(layers[number]): tile for number, tile in self.tiles.items()}


class Measured(NamedTuple):
    """The measurement of a program.

    Attributes:
        cost: its cost, infinite without a program.
        instructions: its number of instructions, 0 without a program.
    """

    cost: float
    instructions: int


#: The measurement where layers do not fit, or the machine stops the program.
_NOTHING = Measured(math.inf, 0)


class Budget:
    """The instructions that a search may measure. Measurements that are known by then take nothing from it.

    Args:
        plans: counts the instructions that are measured.
        instructions: number of instructions.
        progress: called with the fraction that is used.
    """

    def __init__(self, plans: TilePlans, instructions: int, progress: Callable[[float], None]) -> None:
        self.plans, self.instructions, self.progress = plans, instructions, progress
        self._end = plans.simulated + instructions

    def left(self) -> int:
        """Reports the fraction that is used; returns the rest, negative if the last program had more."""
        left = self._end - self.plans.simulated
        self.progress(1 - max(0, left) / max(1, self.instructions))
        return left


@dataclass
class StepProblem:
    """An NPU step for which a schedule is searched.

    Attributes:
        config: the machine.
        layers: the layers of the step in order.
        outside: buffers that are read outside the step.
        measure: cost function of schedules; None where they are not measured.
        plans: tilings and costs found so far, for the memory that schedules are made for.
    """

    config: NpuConfig
    layers: list[Layer]
    outside: set[str]
    measure: Measure | None = None
    plans: TilePlans = field(default_factory=TilePlans)

    @property
    def memory(self) -> MemoryTiming:
        """Timing of the memory that schedules are made for."""
        return self.plans.memory

    @functools.cached_property
    def readers(self) -> dict[str, list[int]]:
        """The numbers of the layers that read each buffer."""
        return readers(self.layers)

    @functools.cached_property
    def able(self) -> dict[int, Stay]:
        """The tensors that could stay in ACT, without a place, by the number of the layer that makes them."""
        return {stay.first: stay for stay in resident_candidates(self.layers, self.outside)}

    @functools.cached_property
    def _groups(self) -> dict[tuple[int, int, bool], LayerGroup | None]:
        return {}

    def group(self, at: int, count: int, by_channel: bool) -> LayerGroup | None:
        """Returns layers at..at+count-1 as a group without a number of rows per band, None if they cannot be one."""
        key = at, count, by_channel
        if key not in self._groups:
            if by_channel:
                found = channel_group(self.config, self.layers, at, count, self.readers, self.outside)
            else:
                found = group_of(self.layers, at, count, self.readers, self.outside)
            self._groups[key] = found
        return self._groups[key]

    def unit(self, at: int, count: int, step: int) -> LayerGroup | None:
        """Returns layers at..at+count-1 as a unit of a schedule, None if they cannot be one.

        Args:
            step: rows of the last output per band; 0 for a single layer and for a group by channels.
        """
        if count == 1 or step < 0:
            return LayerGroup((self.layers[at],)) if count == 1 else None
        group = self.group(at, count, by_channel=not step)
        if group is None or (step and step not in group.steps([step])):
            return None
        return structs.replace(group, step=step)

    def fresh(self) -> StepProblem:
        """Returns the same problem without tilings and costs found so far."""
        return replace(self, plans=TilePlans(self.memory))

    def measured_by(self, measure: Measure | None) -> StepProblem:
        """Returns the same problem with another cost function; both find their tilings together."""
        return replace(self, measure=measure)

    def dry_context(self) -> Context:
        """Returns a context that only counts the work of engines."""
        emitter = Emitter(self.config, 0, dry=True, memory=self.memory)
        return Context(self.config, emitter, ConstantPool(), defaultdict(int), plans=self.plans)

    def busy_cycles(self, schedule: Schedule) -> tuple[int, int]:
        """Returns the cycles in which the busier of GEMM and VECTOR works, and the busier of LOAD and STORE."""
        context = self.dry_context()
        schedule.use_tiles(context, self.layers)
        emit_step(context, schedule.units, schedule.stays)
        work = context.emitter.work
        return max(work[Engine.GEMM], work[Engine.VECTOR]), max(work[Engine.LOAD], work[Engine.STORE])

    def cost(self, schedule: Schedule, units: tuple[int, int] | None = None) -> float:
        """Returns the cost of the step by a schedule, or of its units first..end-1; infinite if it does not fit."""
        return self.measured(schedule, units).cost

    def measured(self, schedule: Schedule, units: tuple[int, int] | None = None) -> Measured:
        """Returns the cost and the instructions of the step by a schedule, or of its units first..end-1."""
        first, end = units or (0, len(schedule.units))
        return self.measured_units(schedule.units[first:end], schedule, schedule.starts()[first])

    def measured_units(self, units: list[LayerGroup], schedule: Schedule, start: int) -> Measured:
        """Returns the measurement of units that begin with layer `start`, with the stays and tilings of a schedule.

        The cost is infinite if they do not fit, or if the machine stops their program: that is a fault of the compiler,
        but other schedules may be right. Units of equal shape are measured once.
        """
        key = self.measure, self._key(units, schedule, start)
        found = self.plans.measured.get(key)
        if found is None:
            found = self.plans.measured[key] = self._measure(units, schedule, start)
            self.plans.simulated += found.instructions
        return found

    def _key(self, units: list[LayerGroup], schedule: Schedule, start: int) -> Hashable:
        """Returns a key that is equal for units of equal cost.

        These have layers of equal shape, equal groups and tilings, and the same tensors in ACT.
        """
        layers = [layer for unit in units for layer in unit.layers]
        shapes, numbers = together(self.plans.shapes, layers)
        end = start + len(layers)
        tiles = tuple(schedule.tiles.get(number) for number in range(start, end))
        stays = []
        for stay in schedule.stays:
            if stay.first < end and stay.last >= start:
                life = max(-1, stay.first - start), min(len(layers), stay.last - start)
                stays.append((*life, *stay.place_key(numbers)))
        return shapes, tuple((len(unit.layers), unit.step) for unit in units), tiles, tuple(stays)

    def _measure(self, units: list[LayerGroup], schedule: Schedule, start: int) -> Measured:
        """Returns the measurement of units, without looking for an earlier one."""
        assert self.measure is not None, "no cost function"
        offsets, arena_bytes = _offsets([layer for unit in units for layer in unit.layers])
        emitter = Emitter(self.config, arena_bytes, memory=self.memory)
        context = Context(self.config, emitter, ConstantPool(), offsets, plans=self.plans, timing_only=True)
        schedule.use_tiles(context, self.layers)
        try:
            emit_step(context, units, schedule.stays, start)
        except (ScratchpadFull, CompileError):
            return _NOTHING
        except AssemblyError as error:
            return _left_out(units, start, error)
        try:
            cost = self.measure(self.config, bytes(emitter.image), arena_bytes)
        except DeviceError as error:
            return _left_out(units, start, error)
        return Measured(cost, len(emitter.image) // INSTRUCTION_BYTES)


def _offsets(layers: list[Layer]) -> tuple[dict[str, int], int]:
    """Returns places for all buffers of some layers, in bytes, by name; and the bytes of an arena that holds them."""
    offsets, at = {}, 0
    for view in (v for layer in layers for v in (*layer.reads, layer.output)):
        if view.region == CONSTANT_REGION:
            offsets[view.buffer] = 0  # all constants share a place: the clock does not see it
        elif view.buffer not in offsets:
            offsets[view.buffer] = at
            at += -(-max(view.nbytes, view.n * view.sn, 1) // 256) * 256
    for name in (n for layer in layers for n in layer.extra_reads if n not in offsets):
        offsets[name] = at
        at += _BEYOND
    return offsets, at + _BEYOND


def _left_out(units: list[LayerGroup], start: int, error: Exception) -> Measured:
    """Warns of units without a program, or with one that the machine stops; returns a measurement of infinite cost."""
    warnings.warn(
        f"a schedule of {len(units)} units from layer {start} on is left out, please report it: {error}",
        RuntimeWarning,
        stacklevel=4,
    )
    return _NOTHING


#: Returns the schedule of a step; None leaves the step to the search.
Scheduler = Callable[[StepProblem], Schedule | None]
