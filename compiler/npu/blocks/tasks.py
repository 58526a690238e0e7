"""Tasks: the units of work that the compiler puts in order, layers on the NPU and nodes on the CPU."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.npu.layers.layer import Layer

Task = Layer | Node


#: Ops of the nodes that bring the NPU's operands into its form, and its results back.
_CONVERSIONS = frozenset({"Relayout", "PackMatMulParams", "SplitBytes", "JoinBytes"})


def is_conversion(node: Node) -> bool:
    """Returns True if a node is a conversion between CPU and NPU that the compiler added, not a node of the model."""
    return node.op in _CONVERSIONS


def reads_of(task: Task) -> list[str]:
    """Returns the names of the tensors and buffers a task reads."""
    if isinstance(task, Node):
        return [name for name in task.inputs if name]
    return [view.buffer for view in task.reads] + task.extra_reads


def writes_of(task: Task) -> list[str]:
    """Returns the names of the tensors and buffers a task writes."""
    return [name for name in task.outputs if name] if isinstance(task, Node) else [task.output.buffer]


def describe(task: Task) -> str:
    """Returns one line about a task; conversions without their tables."""
    if isinstance(task, Layer):
        return task.describe()
    if is_conversion(task):
        return f"{', '.join(task.outputs)} = {task.op}({', '.join(task.inputs)})"
    return str(task)


def verify_tasks(tasks: Sequence[Task], available: Collection[str], wanted: Collection[str]) -> None:
    """Checks that every task reads only what is available or was written before it, and that all results are made.

    Args:
        tasks: the tasks in order.
        available: names of tensors that exist at the start.
        wanted: names of tensors that must exist at the end.

    Raises:
        CompileError: a task reads a tensor before it is made, or a wanted one is never made.
    """
    ready = set(available)
    for task in tasks:
        missing = [name for name in reads_of(task) if name not in ready]
        if missing:
            what = f"{task.op} {task.name!r}"
            raise CompileError(f"layouts broken: {what} reads {missing[0]!r} before it is made")
        ready.update(writes_of(task))
    for name in wanted:
        if name not in ready:
            raise CompileError(f"layouts broken: {name!r} is never made")
