"""CPU segments: the nodes of every CPU step as kernels, for LLVM to compile."""

from __future__ import annotations

from tilewright.compiler import cpu
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.graph.states import kept_in_place
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.order import NodeStep, Step, is_kept, reads_elsewhere
from tilewright.compiler.stages.partition import Partition


def prepare_segments(
    graph: Graph, partition: Partition, steps: list[Step], options: CompileOptions
) -> dict[int, cpu.Segment]:
    """Prepares every CPU step to be compiled; the result is by number of the step. The graph gains packed weights.

    Raises:
        UnsupportedError: naming node, attribute, value and what is supported.
    """
    segments: dict[int, cpu.Segment] = {}
    if not any(isinstance(step, NodeStep) for step in steps):
        return segments  # the compiler of CPU kernels takes 0.1 s to import
    target = options.target()
    elsewhere = reads_elsewhere(steps)
    packed = cpu.PackedConstants(graph)
    in_place = kept_in_place(graph)
    for number, step in enumerate(steps):
        if not isinstance(step, NodeStep):
            continue
        made = {name: None for node in step.tasks for name in node.outputs if name}
        read = {name: None for node in step.tasks for name in node.inputs if name}
        inputs = [name for name in read if name not in made and not graph.tensor(name).is_const]
        wanted = elsewhere[number].union(graph.outputs)
        outputs = [name for name in made if name in wanted or (options.keep_all and is_kept(graph, partition, name))]
        for node in step.tasks:
            reason = cpu.unsupported_reason(graph, node)
            if reason is not None:
                raise UnsupportedError(reason)
        symbol = f"tw_segment_{number}"
        segments[number] = cpu.prepare_segment(
            graph, step.tasks, inputs, outputs, symbol, target, threads=options.threads, packed=packed,
            in_place=in_place,
        )  # fmt: skip
    return segments


def describe_segments(segments: dict[int, cpu.Segment]) -> str:
    """Returns one block of text per segment: what it reads and writes, and its kernels."""
    lines = []
    for number, segment in segments.items():
        lines.append(f"step {number}: {', '.join(segment.inputs)} -> {', '.join(segment.outputs)}")
        lines += [f"  {kernel}" for kernel in segment.description]
    return "\n".join(lines)
