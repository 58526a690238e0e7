"""Partition: the graph as tasks for NPU and CPU, with the conversions between their layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.blocks.blocked import BlockedBuffer
from tilewright.compiler.npu.blocks.convert import Converter
from tilewright.compiler.npu.blocks.layouts import Layouts
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.blocks.tasks import Task, describe, verify_tasks
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.replacing import LayerKernel, replaced
from tilewright.compiler.npu.ops import lower, npu_op_of
from tilewright.compiler.npu.place.layout import choose_layouts
from tilewright.compiler.npu.place.place import Placement, place_nodes
from tilewright.compiler.npu.place.placement_cost import PlacementCost
from tilewright.compiler.npu.place.tails import Chain, WorkOrder, fuse_tails, verify_work
from tilewright.compiler.npu.rewrites import run_rewrites
from tilewright.compiler.npu.schedule.search import misfits
from tilewright.compiler.npu.views import is_dense
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.lookups import RowsOfInput, take_lookups
from tilewright.isa.config import NpuConfig

if TYPE_CHECKING:
    from tilewright.compiler.npu.place.placement_cost import PlacementCost


class Partition(Struct):
    """A graph as tasks in an order that works.

    Attributes:
        tensors: names of the model's own tensors; the graph has more, which conversions make.
        tasks: layers of the NPU and nodes of the CPU.
        buffers: in the arena, which layers read and write, by name.
        constants: bytes of blocked constants the NPU reads, by name.
        placement, work, layouts: the decisions that led there.
        lookups: rows of tables that the runtime copies before a run.
        steps_of: outputs of the model that are floats of the steps in a blocked tensor, which nobody else reads: the
            blocked tensor, by the output's name. The runtime makes floats of them as it reads them.
    """

    tensors: frozenset[str]
    tasks: list[Task]
    buffers: dict[str, BlockedBuffer]
    constants: dict[str, bytes]
    placement: Placement
    work: WorkOrder
    layouts: Layouts
    steps_of: dict[str, str] = {}
    lookups: list[RowsOfInput] = []

    @property
    def read_behind(self) -> set[str]:
        """Names of the buffers that the runtime reads behind a run."""
        return {self.layouts.blocked[source].view.buffer for source in self.steps_of.values()}

    def describe_work(self) -> str:
        """One line per chain or CPU node."""
        return "\n".join(str(piece) if isinstance(piece, Chain) else f"CPU  {piece}" for piece in self.work)

    def describe_tasks(self) -> str:
        """One line per task, then the buffers between CPU and NPU, then the NPU's constants."""
        tasks = (f"{'NPU' if isinstance(task, Layer) else 'CPU'}  {describe(task)}" for task in self.tasks)
        constants = (f"{name}: constant of {len(data)} bytes" for name, data in self.constants.items())
        return "\n".join([*tasks, *map(str, self.buffers.values()), *constants])


def partition(
    graph: Graph, config: NpuConfig, options: CompileOptions, out: Callable[[str], object] = print
) -> Partition:
    """Divides a graph between NPU and CPU, after the rewrites for the NPU. The graph gains the tensors that these and
    conversions make.

    Args:
        out: where `options.print_after` prints the graph after rewrites to.
    """
    if not options.cpu_only:
        run_rewrites(graph, config, options.print_after, out, options.keep_all, options.print_form)
    tensors = frozenset(graph.tensors)
    excluded: dict[str, str] = {}
    while True:
        found = _attempt(graph, config, tensors, options, excluded)
        more = misfits(config, [task for task in found.tasks if isinstance(task, Layer)])
        if not more.keys() - excluded.keys():
            _name_reasons(graph, found.placement)
            return found
        excluded |= more


def _name_reasons(graph: Graph, placement: Placement) -> None:
    """Notes why a node may be off by a step where it is the machine's rule that differs."""
    for node in graph.nodes:
        op = npu_op_of(node)
        if op is not None and node.quantized is not None and op.reason and placement.on_npu(node) and not node.reason:
            node.quantized = replace(node.quantized, reason=op.reason)


def _attempt(
    graph: Graph, config: NpuConfig, tensors: frozenset[str], options: CompileOptions, excluded: Mapping[str, str]
) -> Partition:
    """The partition if the nodes that make `excluded` run on the CPU."""
    wiring = Wiring.of(graph)
    cost = _placement_cost(graph, config, options)
    placement = place_nodes(wiring, config, cpu_only=options.cpu_only, excluded=excluded, cost=cost)
    placement.verify(wiring)
    work = fuse_tails(wiring, placement, fuse=not options.keep_all)
    verify_work(work, wiring, placement)
    layouts = choose_layouts(wiring, work, config.block_in)
    converter = Converter(wiring, layouts, config, options.keep_all)
    byte_cycles = cost.byte_cycles if cost else 0.0
    floats = _floats_of_steps(wiring, placement)
    steps_of = {node.outputs[0]: node.inputs[0] for node in floats}
    operands = Operands(config, layouts, converter, byte_cycles, options.memory)
    _lower([piece for piece in work if not any(piece is node for node in floats)], operands, converter, options.kernels)
    windows = options.host is None and not options.keep_all and _has_windows(wiring, placement)
    lookups = take_lookups(graph, converter) if windows else []
    if not all(isinstance(task, Layer) for task in converter.tasks) or not all(
        (found := layouts.find(name)) is not None and found.view.bytes == 1 and is_dense(found.view)
        for name in steps_of.values()
    ):
        steps_of = {}
        for node in floats:
            converter.run_node(node)
    for name in graph.outputs:
        if name not in steps_of:
            converter.plain(name)
    made = [name for name in graph.outputs if name not in steps_of]
    constants = {name for name, t in graph.tensors.items() if t.is_const}
    there = {*graph.inputs, *constants, *converter.constants, *(rows.buffer for rows in lookups)}
    verify_tasks(converter.tasks, there, made)
    return Partition(
        tensors, converter.tasks, converter.buffers, converter.constants, placement, work, layouts, steps_of, lookups
    )


def _has_windows(wiring: Wiring, placement: Placement) -> bool:
    """Returns True if windows move states on the NPU: there a token shall be one turn."""
    return any(isinstance(node.quantized, QPut) and placement.on_npu(node) for node in wiring.graph.nodes)


def _floats_of_steps(wiring: Wiring, placement: Placement) -> list[Node]:
    """Returns the nodes that make outputs of the model of 8-bit tensors in a graph whose states windows move: there
    these are all that may be left for the CPU."""
    graph = wiring.graph
    if not _has_windows(wiring, placement):
        return []
    return [
        node
        for node in graph.nodes
        if node.op == "DequantizeLinear" and node.outputs[0] in graph.outputs and not wiring.readers(node.outputs[0])
        if is_activation(graph.tensor(node.inputs[0])) and graph.tensor(node.outputs[0]).dtype == np.float32
    ]


def _placement_cost(graph: Graph, config: NpuConfig, options: CompileOptions) -> PlacementCost | None:
    """Returns the times that decide between the NPU and a host of known speed, None where the host is this machine, and
    where states lie with the NPU: an op on the CPU would unpack a cache for every token."""
    if options.host is None or options.keep_all or any(isinstance(node.quantized, QPut) for node in graph.nodes):
        return None
    from tilewright.compiler.cpu.cost import named_host_model  # the compiler of CPU kernels takes 0.1 s to import
    from tilewright.compiler.npu.place.placement_cost import PlacementCost

    return PlacementCost(named_host_model(options.host), options.target(), config, options.clock_mhz)


def _lower(work: WorkOrder, operands: Operands, converter: Converter, kernels: Sequence[LayerKernel]) -> None:
    """Turns chains into layers, which ask for their operands. Kernels take the place of those that they match."""
    for piece in work:
        if isinstance(piece, Chain):
            layers = lower(operands.graph, piece.head, operands, list(piece.tail))
            for layer in replaced(layers, operands.config, kernels):
                converter.run_layer(layer)
        else:
            converter.run_node(piece)
