"""Memory: an offset for every buffer, in the device's arena and in the host's."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from tilewright.compiler import cpu
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.graph.states import kept_in_place
from tilewright.compiler.npu.blocks.tasks import reads_of, writes_of
from tilewright.compiler.npu.emit.context import ConstantPool
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.memory_plan import MemoryPlan
from tilewright.compiler.stages.order import LayerStep, Step, is_kept
from tilewright.compiler.stages.partition import Partition
from tilewright.compiler.stages.schedule import Schedules


class MemoryMap(Struct):
    """Places of everything in memory.

    Attributes:
        arena: of the device, blocked buffers.
        host: of the host process, plain tensors.
        constants: the device's constant region, which the emission adds to.
        blocked_constants: offsets in it, by name.
        host_constants: constants of CPU kernels in the host arena: the section with the bytes, by name.
        in_place: tensors that lie in the memory of another, by name.
    """

    arena: MemoryPlan = field(default_factory=MemoryPlan)
    host: MemoryPlan = field(default_factory=MemoryPlan)
    constants: ConstantPool = field(default_factory=ConstantPool)
    blocked_constants: dict[str, int] = field(default_factory=dict)
    host_constants: dict[str, str] = field(default_factory=dict)
    in_place: dict[str, str] = field(default_factory=dict)

    @property
    def device_offsets(self) -> dict[str, int]:
        """Returns the offsets, by name, of all buffers that the NPU reads or writes."""
        return self.blocked_constants | self.arena.offsets

    def verify(self) -> None:
        """Raises `CompileError` if buffers overlap while both are needed."""
        self.arena.verify("arena")
        self.host.verify("host arena")

    def __str__(self) -> str:
        lines = [
            f"arena {self.arena.size} bytes (separate places would take {self.arena.total}), "
            f"host {self.host.size} bytes (separately {self.host.total})"
        ]
        for space, plan in (("arena", self.arena), ("host", self.host)):
            offsets = plan.offsets
            lines += [
                f"  {space} {offsets[name]:>10} +{plan.nbytes(name):<9} {name}"
                for name in sorted(offsets, key=offsets.__getitem__)
            ]
        return "\n".join(lines)


def place_memory(
    graph: Graph,
    partition: Partition,
    steps: list[Step],
    schedules: Schedules,
    segments: dict[int, cpu.Segment],
    options: CompileOptions,
    constants: ConstantPool | None = None,
) -> MemoryMap:
    """Places every buffer by the first and last task that needs it; what is to be kept has its place to the end.

    Args:
        constants: takes those of the NPU, beside others; None for a memory of their own.
    """
    lives = _Lives(graph, partition, options.keep_all, end=sum(len(step.tasks) for step in steps) + 1)
    lives.memory.in_place |= kept_in_place(graph)
    lives.memory.constants = constants or ConstantPool()
    position = 0
    for name, data in partition.constants.items():
        lives.memory.blocked_constants[name] = lives.memory.constants.place(data)
    for name in graph.inputs:
        lives.of_tensor(name, 0, lives.end)
    for state in graph.states:
        if state.plain:
            lives.memory.arena.begin_with(state.begin)
    for number, step in enumerate(steps):
        if isinstance(step, LayerStep):
            lives.of_layers(schedules.of[number], position)
        else:
            lives.of_segment(segments[number], position, position + len(step.tasks) - 1)
        position += len(step.tasks)
    for rows in partition.lookups:
        lives.memory.arena.need(rows.buffer, partition.buffers[rows.buffer].allocated, 0, 0)
    for name in partition.read_behind:
        lives.memory.arena.need(name, partition.buffers[name].allocated, lives.end, lives.end)
    for name in graph.outputs:
        if name in partition.steps_of:
            continue
        if graph.tensor(name).is_const:
            lives.of_constant(name)
        else:
            lives.of_tensor(name, 0 if name in graph.inputs else lives.end, lives.end)
    if options.keep_all:
        for buffer in partition.buffers.values():
            lives.memory.arena.need(buffer.name, buffer.allocated, 0, lives.end)
    lives.memory.arena.place()
    lives.memory.host.place()
    lives.memory.verify()
    for name, home in lives.memory.in_place.items():
        (lives.memory.arena if home in partition.buffers else lives.memory.host).share(name, home)
    return lives.memory


class _Lives(Struct):
    """Lifetimes of buffers: positions, in execution order, of first and last use; `end` is after the last."""

    graph: Graph
    partition: Partition
    keep_all: bool
    end: int
    memory: MemoryMap = field(default_factory=MemoryMap)

    def of_tensor(self, name: str, first: int, last: int) -> None:
        name = self.memory.in_place.get(name, name)
        plan = self.memory.arena if name in self.partition.buffers else self.memory.host  # states in blocks
        plan.need(name, self.graph.tensor(name).nbytes, first, last)

    def of_layers(self, schedule: Schedule, position: int) -> None:
        """Buffers of an NPU step that do not stay on the chip. Layers of a group run at the same time, so what any of
        them touches is needed as long as the group runs."""
        on_chip = {stay.view.buffer for stay in schedule.stays}
        for unit in schedule.units:
            last = position + len(unit.layers) - 1
            on_chip |= {between.view.buffer for between in unit.between}
            for layer in unit.layers:
                for name in (self.memory.in_place.get(n, n) for n in (*reads_of(layer), *writes_of(layer))):
                    if name in self.partition.buffers and name not in on_chip:
                        self.memory.arena.need(name, self.partition.buffers[name].allocated, position, last)
                    elif name not in on_chip and name not in self.partition.constants:
                        raise CompileError(f"memory broken: {layer.describe()} uses {name!r}, which has no place")
            position = last + 1

    def of_segment(self, segment: cpu.Segment, first: int, last: int) -> None:
        for name in (*segment.inputs, *segment.outputs):
            name = self.memory.in_place.get(name, name)
            buffer = self.partition.buffers.get(name)
            plan, nbytes = (
                (self.memory.arena, buffer.allocated)
                if buffer is not None
                else (self.memory.host, self.graph.tensor(name).nbytes)
            )
            kept = self.keep_all and is_kept(self.graph, self.partition, name)
            plan.need(name, nbytes, 0 if kept else first, self.end if kept else last)
        for name in segment.constants:
            self.of_constant(name)

    def of_constant(self, name: str) -> None:
        """A constant of the graph that a CPU kernel or the user reads."""
        self.of_tensor(name, 0, self.end)
        section = f"constant{len(self.memory.host_constants)}"
        self.memory.host_constants.setdefault(name, section)


def constant_bytes(graph: Graph, name: str) -> bytes:
    """A constant of the graph as the host arena holds it."""
    data = graph.tensor(name).data
    assert data is not None
    return np.ascontiguousarray(data).tobytes()
