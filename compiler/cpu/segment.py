"""`compile_segment`: compiles nodes of a graph to one relocatable object."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from tilewright.compiler.cpu import findings
from tilewright.compiler.cpu.cost import Work, work_of
from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.threads import LINE
from tilewright.compiler.cpu.object.compiler import compiling, jobs_of
from tilewright.compiler.cpu.ops import RULES
from tilewright.compiler.cpu.schedule import Schedules
from tilewright.compiler.cpu.stages.context import Context, PackedConstants
from tilewright.compiler.cpu.stages.entry import Poison, counter_bytes, entry_point
from tilewright.compiler.cpu.stages.plan import WorkspaceSize, plan
from tilewright.compiler.cpu.stages.stage import Call, describe
from tilewright.compiler.cpu.stages.value import ElementFn, Value
from tilewright.compiler.cpu.target import Target, poisoned
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.llvm.job import Job


class KernelCost(Struct, frozen=True):
    """Nodes, work and memory of one kernel.

    Attributes:
        nodes: the nodes it computes.
        work: its operations, over all threads.
        nbytes: bytes of its buffers, each once.
    """

    nodes: list[Node]
    work: Work
    nbytes: int


@dataclass
class Segment:
    """Compiled nodes.

    Attributes:
        symbol: name of the entry point.
        object_code: relocatable object, empty until the segment is compiled.
        inputs: tensors passed first, in this order, C-contiguous.
        constants: tensors of the graph passed next; small ones are in the object instead. Weights in the
            micro-kernels' order are added to the graph under new names.
        outputs: tensors passed last.
        workspace_bytes: size of the workspace, which must be aligned to 64 bytes.
        description: one line per kernel.
        memory: size of the workspace, with and without reuse.
        threads: number of threads that must call the entry point together.
        poisoned: dead buffers of the workspace are filled with poison (`stages.entry.POISON`).
        jobs: functions that are still to be compiled.
        costs: costs of every kernel, in the order they run.
    """

    symbol: str
    object_code: bytes
    inputs: list[str]
    constants: list[str]
    outputs: list[str]
    workspace_bytes: int
    description: list[str]
    memory: WorkspaceSize
    threads: int = 1
    poisoned: bool = False
    jobs: list[Job] = field(default_factory=list, repr=False)
    costs: list[KernelCost] = field(default_factory=list, repr=False)


GUARD = 64  # bytes between the buffers of a poisoned workspace


def run_rules(ctx: Context, nodes: Sequence[Node]) -> None:
    """Runs every node's rule, which defines its values in `ctx`."""
    for node in nodes:
        ctx.node = node
        rule = RULES.get(node.op)
        if rule is None:
            raise ctx.unsupported("no CPU kernel for this op", ", ".join(sorted(RULES)))
        rule(ctx)


def unsupported_reason(graph: Graph, node: Node) -> str | None:
    """The reason why `node` cannot be compiled, None if it can."""
    ctx = Context(graph, [node], [o for o in node.outputs if o], Target.host(), dry=True)
    try:
        for name in [*node.inputs, *node.outputs]:
            if name:
                ctx.shape(name)
        run_rules(ctx, [node])
    except UnsupportedError as e:
        return str(e)
    return None


def prepare_segment(
    graph: Graph,
    nodes: list[Node],
    inputs: list[str],
    outputs: list[str],
    symbol: str,
    target: Target | None = None,
    schedules: Schedules | None = None,
    threads: int = 1,
    packed: PackedConstants | None = None,
    poison: bool | None = None,
    in_place: Collection[str] = (),
) -> Segment:
    """Prepares a segment, all but its object code; `nodes` are in topological order and of static shapes.

    Args:
        graph: holds the tensors; packed weights are added to it.
        nodes: nodes to compile.
        inputs: tensors made elsewhere.
        outputs: tensors wanted by others.
        symbol: name of the entry point.
        target: machine to compile for, by default this one.
        schedules: schedules of the kernels; by default those in the log for the target.
        threads: number of threads that share the work; the results are the same for every number.
        packed: weights packed for other segments of the graph, which this one may use.
        poison: fill every buffer of the workspace with poison after its last reader, and leave bytes between them; by
            default as the environment requests (`target.poisoned`).
        in_place: outputs whose memory already holds the tensor that their op updates.

    Raises:
        UnsupportedError: a node is not supported; names node, attribute, value and the supported values.
    """
    target = target or Target.host()
    schedules = schedules or Schedules(findings.found(target))
    ctx = Context(graph, nodes, outputs, target, schedules=schedules, packed=packed, in_place=in_place)
    run_rules(ctx, nodes)
    for name in outputs:
        if name not in ctx.output_buffers:  # an input or constant handed straight through
            ctx.node = Node("Identity", [name], [name])
            ctx.output(name, Value(ctx.value(name).shape, ctx.value(name).dtype, fn=_reader(ctx, name)))
    poison = poisoned() if poison is None else poison
    planned = plan(ctx.stages, Module(target, threads), schedules, GUARD if poison else 0)
    buffers = dict.fromkeys(b for call in planned.calls for b in call.buffers)
    used = {b.name for b in buffers if b.role == "const"}
    constants = [name for name in ctx.consts if name in used]
    places = {name: k for k, name in enumerate([*inputs, *constants])}
    outside = {name: len(places) + k for k, name in enumerate(outputs)}
    slots = {b: _slot(b, places, outside) for b in buffers if b not in planned.offsets}
    steps: list[Call | Poison] = list(planned.calls)
    if poison:
        steps = [Poison([(0, planned.memory.arena)])]
        for call, spans in zip(planned.calls, planned.dead, strict=True):
            steps += [call, Poison(spans)]
    start = -(-planned.memory.arena // LINE) * LINE
    entry = entry_point(planned.module, symbol, steps, slots, planned.offsets, start)
    room = counter_bytes(planned.module, steps)
    nbytes = start + room if room else planned.memory.arena
    kernels = [describe(stage) for stage in ctx.stages]
    memory, jobs = planned.memory, jobs_of(planned.module, entry)
    costs = [
        KernelCost(nodes, work, sum(b.nbytes for b in dict.fromkeys(call.buffers)))
        for nodes, call in zip(ctx.computed, planned.calls, strict=True)
        for work in [work_of(f"@{call.name}", planned.module.functions, target.vector_bits)]
    ]
    return Segment(
        symbol, b"", list(inputs), constants, list(outputs), nbytes, kernels, memory, threads, poison, jobs, costs
    )


@contextlib.contextmanager
def compiled_beside(segments: Sequence[Segment]) -> Iterator[Callable[[], None]]:
    """Compiles prepared segments while the block runs, in other processes where the work is large enough.

    Yields:
        A function that waits until they all have their object code.
    """
    with compiling([(segment.jobs, segment.symbol) for segment in segments]) as objects:

        def finish() -> None:
            for segment, code in zip(segments, objects(), strict=True):
                segment.object_code, segment.jobs = code, []

        yield finish


def compile_segment(
    graph: Graph,
    nodes: list[Node],
    inputs: list[str],
    outputs: list[str],
    symbol: str,
    target: Target | None = None,
    schedules: Schedules | None = None,
    threads: int = 1,
    packed: PackedConstants | None = None,
    poison: bool | None = None,
) -> Segment:
    """Compiles a segment: `prepare_segment`, and its object code."""
    segment = prepare_segment(graph, nodes, inputs, outputs, symbol, target, schedules, threads, packed, poison)
    with compiled_beside([segment]) as finish:
        finish()
    return segment


def _slot(buffer: Buffer, places: dict[str, int], outputs: dict[str, int]) -> int:
    return outputs[buffer.name] if buffer.role == "output" else places[buffer.name]


def _reader(ctx: Context, name: str) -> ElementFn:
    source = ctx.value(name)
    return lambda idx: ctx.read(source, idx)
