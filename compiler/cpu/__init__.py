"""CPU kernels: nodes of a graph compiled to native code by LLVM.

`compile_segment` turns nodes into one relocatable object with one entry point,
`void symbol(uint8_t **buffers, uint8_t *workspace)`; `load` makes it callable in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.cpu import assemble, fuse, schedule_log
from compiler.cpu.loader import load
from compiler.cpu.ops import OPS
from compiler.cpu.schedule import Schedules
from compiler.cpu.target import Target
from compiler.errors import UnsupportedError
from compiler.graph import Graph, Node

__all__ = ["Segment", "Target", "compile_segment", "load", "run_rules", "unsupported_reason"]


@dataclass
class Segment:
    """Compiled nodes.

    Attributes:
        symbol: name of the entry point.
        object_code: relocatable object.
        inputs: tensors passed first, in this order, C-contiguous.
        constants: tensors of the graph passed next; small ones are in the object instead. Weights in the
            micro-kernels' order are added to the graph under new names.
        outputs: tensors passed last.
        workspace_bytes: size of the workspace, which must be aligned to 64 bytes.
        description: one line per kernel.
        memory: the workspace, against what it would take without reuse.
        threads: that must call the entry point together.
    """

    symbol: str
    object_code: bytes
    inputs: list[str]
    constants: list[str]
    outputs: list[str]
    workspace_bytes: int
    description: list[str]
    memory: assemble.Memory
    threads: int = 1


def run_rules(ctx: fuse.Context, nodes: Sequence[Node]) -> None:
    """Lets every node's rule define its values in `ctx`."""
    for node in nodes:
        ctx.node = node
        rule = OPS.get(node.op)
        if rule is None:
            raise ctx.unsupported("no CPU kernel for this op", ", ".join(sorted(OPS)))
        rule(ctx)


def unsupported_reason(graph: Graph, node: Node) -> str | None:
    """Why `node` cannot be compiled, None if it can."""
    ctx = fuse.Context(graph, [node], [o for o in node.outputs if o], Target.host(), dry=True)
    try:
        for name in [*node.inputs, *node.outputs]:
            if name:
                ctx.shape(name)
        run_rules(ctx, [node])
    except UnsupportedError as e:
        return str(e)
    return None


def compile_segment(
    graph: Graph,
    nodes: list[Node],
    inputs: list[str],
    outputs: list[str],
    symbol: str,
    target: Target | None = None,
    schedules: Schedules | None = None,
    threads: int = 1,
) -> Segment:
    """Compiles `nodes`, in topological order and of static shapes, into one object.

    Args:
        graph: holds the tensors; packed weights are added to it.
        nodes: what to compile.
        inputs: tensors made elsewhere.
        outputs: tensors wanted by others.
        symbol: name of the entry point.
        target: machine to compile for, by default this one.
        schedules: of the kernels; by default what the log says of the target.
        threads: that share the work; the results are the same for every number.

    Raises:
        UnsupportedError: naming node, attribute, value and what is supported.
    """
    target = target or Target.host()
    schedules = schedules or Schedules(schedule_log.found(target))
    ctx = fuse.Context(graph, nodes, outputs, target, dry=False, schedules=schedules)
    run_rules(ctx, nodes)
    for name in outputs:
        if name not in ctx.output_buffers:  # an input or constant handed straight through
            ctx.node = Node("Identity", [name], [name])
            ctx._output(name, fuse.Value(ctx.value(name).shape, ctx.value(name).dtype, fn=ctx_reader(ctx, name)))
    code, constants, memory = assemble.build(ctx, inputs, outputs, symbol, threads)
    kernels = assemble.describe(ctx)
    return Segment(symbol, code, list(inputs), constants, list(outputs), memory.arena, kernels, memory, threads)


def ctx_reader(ctx: fuse.Context, name: str) -> fuse.ElementFn:
    source = ctx.value(name)
    return lambda idx: ctx.read(source, idx)
