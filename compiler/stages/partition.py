"""Partition: the graph as tasks for NPU and CPU, with the conversions between their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.graph import Graph, Node
from compiler.npu import lower
from compiler.npu.layers.layer import Layer
from compiler.npu.place.blocked import Blocked, BlockedBuffer
from compiler.npu.place.convert import Converter
from compiler.npu.place.layout import choose_layouts
from compiler.npu.place.operands import Operands
from compiler.npu.place.place import place_nodes
from compiler.npu.place.tails import Chain, fuse_tails, verify_work
from compiler.npu.place.tasks import Task, verify_tasks
from compiler.npu.place.wiring import Wiring
from compiler.npu.schedule.search import misfits
from isa.config import NpuConfig


@dataclass
class Partition:
    """A graph as tasks in an order that works.

    Attributes:
        tensors: names of the model's own tensors; the graph has more, which conversions make.
        tasks: layers of the NPU and nodes of the CPU.
        buffers: in the arena, which layers read and write, by name.
        constants: bytes of blocked constants the NPU reads, by name.
        blocked: the model's tensors that are there in blocked form.
        reasons: why a quantised node runs on the CPU, by node name.
    """

    tensors: frozenset[str]
    tasks: list[Task]
    buffers: dict[str, BlockedBuffer]
    constants: dict[str, bytes]
    blocked: dict[str, Blocked]
    reasons: dict[str, str]


def partition(graph: Graph, config: NpuConfig, *, keep_all: bool = False, cpu_only: bool = False) -> Partition:
    """Divides a graph between NPU and CPU. The graph gains the tensors that conversions make.

    Args:
        keep_all: every quantised tensor is to be in memory: no node joins another.
        cpu_only: the NPU gets nothing.
    """
    tensors = frozenset(graph.tensors)
    excluded: dict[str, str] = {}
    while True:
        found = _attempt(graph, config, tensors, keep_all, cpu_only, excluded)
        more = misfits(config, [task for task in found.tasks if isinstance(task, Layer)])
        if not more.keys() - excluded.keys():
            return found
        excluded |= more


def _attempt(
    graph: Graph,
    config: NpuConfig,
    tensors: frozenset[str],
    keep_all: bool,
    cpu_only: bool,
    excluded: Mapping[str, str],
) -> Partition:
    """The partition if the nodes that make `excluded` run on the CPU."""
    wiring = Wiring.of(graph)
    placement = place_nodes(wiring, config, cpu_only=cpu_only, excluded=excluded)
    placement.verify(wiring)
    work = fuse_tails(wiring, placement, fuse=not keep_all)
    verify_work(work, wiring, placement)
    layouts = choose_layouts(wiring, work, config.block_in)
    converter = Converter(wiring, layouts, config)
    _lower(work, Operands(config, layouts, converter), converter)
    for name in graph.outputs:
        converter.plain(name)
    constants = {name for name, t in graph.tensors.items() if t.is_const}
    verify_tasks(converter.tasks, {*graph.inputs, *constants, *converter.constants}, graph.outputs)
    return Partition(
        tensors, converter.tasks, converter.buffers, converter.constants, layouts.blocked, placement.reasons
    )


def _lower(work: list[Chain | Node], operands: Operands, converter: Converter) -> None:
    """Turns chains into layers, which ask for their operands."""
    for piece in work:
        if isinstance(piece, Chain):
            for layer in lower.LOWER[piece.head.op](operands, piece.head, list(piece.tail)):
                layer.source = piece.head.outputs[0]
                converter.run_layer(layer)
        else:
            converter.run_node(piece)
