"""Rewriter: a graph that is rewritten for one machine, and the tensors that its NPU is expected to make and read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import npu_op_of, unsupported_reason
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


class Rewriter:
    """A graph under rewriting for one machine.

    Nodes are not placed yet: the NPU is expected to run every node that it supports.

    Attributes:
        graph: the graph.
        config: the machine.
        wiring: producers and consumers when the rewriter was made, unless `replace_nodes` tracks them.
    """

    def __init__(self, graph: Graph, config: NpuConfig) -> None:
        self.graph, self.config, self.wiring = graph, config, Wiring.of(graph)

    def replace_nodes(self, replacement: Callable[[Node], Sequence[Node] | None], *, track: bool = False) -> bool:
        """Requests a replacement of every node, in order; returns True if any node has been replaced.

        Args:
            replacement: returns the nodes in place of a node; None or an empty sequence if the node stays.
            track: True to update the wiring after each replacement.
        """
        nodes: list[Node] = []
        changed = False
        for node in self.graph.nodes:
            made = replacement(node)
            nodes += made or [node]
            changed |= bool(made)
            if made and track:
                self.wiring.exchange([node], made)
        if changed:
            self.graph.nodes = nodes
        return changed

    def runs_on_npu(self, node: Node) -> bool:
        """Returns True if the NPU supports a node."""
        return node.quantized is not None and unsupported_reason(self.graph, node, self.config) is None

    def made_by_npu(self, name: str, moves: Collection[str] = MOVES) -> bool:
        """Returns True if the NPU may make a tensor, or the tensor it is moved out of by ops of `moves`."""
        producers = self.wiring.producers
        maker = producers.get(name)
        while maker is not None and maker.op in moves:
            maker = producers.get(maker.inputs[0])
        return maker is not None and self.runs_on_npu(maker)

    def read_by_npu(self, name: str) -> bool:
        """Returns True if the NPU may read a tensor, or a tensor it is moved to."""
        left, seen = [name], {name}
        while left:
            for reader in self.wiring.readers(left.pop()):
                if self.runs_on_npu(reader):
                    return True
                if reader.op in MOVES:
                    left += [made for made in reader.outputs if made and made not in seen]
                    seen.update(reader.outputs)
        return False

    def in_planes(self, name: str) -> bool:
        """Returns True if the NPU may make a tensor with its channels on axis 1."""
        rank, left, seen = len(self.wiring.shape(name)), [name], set[str]()
        while left:
            name = left.pop()
            maker = self.wiring.producers.get(name)
            if name in seen or maker is None or len(self.wiring.shape(name)) != rank:
                continue
            seen.add(name)
            op = npu_op_of(maker) if self.runs_on_npu(maker) else None
            if op is None and maker.op not in ("Slice", "Split"):
                continue
            layout = None if op is None else op.layout_of(rank)
            if layout is not None:
                return layout is Layout.CHANNELS_FIRST
            left += reversed(maker.inputs)  # a sum lies as the first operand does of which it is known
        return False
