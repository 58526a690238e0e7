"""Steps: tasks grouped so that NPU and CPU take turns as seldom as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.npu.blocks.tasks import Task, describe, reads_of, writes_of
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.exactness import QUANTISES, dynamic_tensors, inexact_tensors
from tilewright.compiler.stages.partition import Partition


class LayerStep(Struct):
    """Layers that the NPU runs one after the other, without the CPU in between."""

    tasks: list[Layer]

    def __str__(self) -> str:
        return "\n".join(["NPU", *(f"  {describe(task)}" for task in self.tasks)])


class NodeStep(Struct):
    """Nodes that the CPU runs one after the other, without the NPU in between."""

    tasks: list[Node]

    def __str__(self) -> str:
        return "\n".join(["CPU", *(f"  {describe(task)}" for task in self.tasks)])


Step = LayerStep | NodeStep


def order_steps(graph: Graph, partition: Partition, options: CompileOptions) -> list[Step]:
    """The tasks of a partition as steps. Where all tensors are kept, steps end early, so that every tensor that may
    differ from the reference can be replaced right after it is made. On the CPU that is every one that is kept: where
    the reference computes in floats, which only its run shows, any of them may."""
    constants = {name for name, t in graph.tensors.items() if t.is_const}
    there = {*graph.inputs, *constants, *partition.constants, *(rows.buffer for rows in partition.lookups)}
    steps = group_steps(partition.tasks, there)
    if options.keep_all:
        on_npu = {task.source for task in partition.tasks if isinstance(task, Layer)}
        kept = {name for name in partition.tensors - on_npu if is_kept(graph, partition, name)}
        steps = split_at_borders(steps, inexact_tensors(graph), kept)
    return steps


def is_kept(graph: Graph, partition: Partition, name: str) -> bool:
    """True for the tensors that `keep="all"` keeps in memory: the model's own quantised ones."""
    return name in partition.tensors and (graph.tensor(name).quant is not None or name in dynamic_tensors(graph))


def group_steps(tasks: Sequence[Task], available: Iterable[str]) -> list[Step]:
    """Orders tasks so that as few changes between NPU and CPU as possible remain, keeping their order otherwise.

    Args:
        available: tensors and buffers that are there from the start.
    """
    ready = set(available)
    # Several layers may write parts of one buffer: it is there when the last one has written.
    writers = Counter(name for task in tasks for name in writes_of(task))
    steps: list[Step] = []
    left = list(tasks)
    on_npu, idle = False, 0
    while left:
        taken: list[Task] = []
        while True:
            later: list[Task] = []
            before = len(taken)
            for task in left:
                if isinstance(task, Layer) == on_npu and all(name in ready for name in reads_of(task)):
                    taken.append(task)
                    writers.subtract(writes_of(task))
                    ready.update(name for name in writes_of(task) if not writers[name])
                else:
                    later.append(task)
            left = later
            if len(taken) == before or not left:
                break
        if taken:
            steps.append(_step(taken))
        idle = 0 if taken else idle + 1
        if idle > 1:  # neither side can go on
            raise CompileError(f"order of work broken: {left[0].op} {left[0].name!r} never finds its operands")
        on_npu = not on_npu
    return steps


def _step(tasks: Sequence[Task]) -> Step:
    layers = [task for task in tasks if isinstance(task, Layer)]
    return LayerStep(layers) if layers else NodeStep([task for task in tasks if isinstance(task, Node)])


def split_at_borders(steps: list[Step], inexact: Collection[str], kept: Collection[str] = ()) -> list[Step]:
    """Ends a step after everything that the CPU quantises, every task that makes one of `inexact`, and every task of
    the CPU that makes one of `kept`, so that the result can be replaced before anything reads it."""
    split: list[Step] = []
    for step in steps:
        part: list[Task] = []
        for task in step.tasks:
            part.append(task)
            if _ends_step(task, inexact, kept):
                split.append(_step(part))
                part = []
        if part:
            split.append(_step(part))
    return split


def _ends_step(task: Task, inexact: Collection[str], kept: Collection[str]) -> bool:
    if isinstance(task, Layer):
        return task.source in inexact
    return task.op in QUANTISES or task.outputs[0] in inexact or any(name in kept for name in task.outputs)


def reads_elsewhere(steps: Sequence[Step]) -> list[set[str]]:
    """Names that other steps read, for each step."""
    own = [{name for task in step.tasks for name in reads_of(task)} for step in steps]
    readers = Counter(name for names in own for name in names)
    return [set(readers) - {name for name in names if readers[name] == 1} for names in own]


def describe_steps(steps: Sequence[Step], partition: Partition) -> str:
    """The tasks of every step, then why quantised nodes run on the CPU."""
    lines = [f"step {number}: {step}" for number, step in enumerate(steps)]
    return "\n".join([*lines, *(f"on the CPU: {name}: {why}" for name, why in partition.placement.reasons.items())])
