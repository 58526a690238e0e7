"""Adds and tables join the node before them: one pass over the data does both. The order of work follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import NpuOp, npu_op_of
from tilewright.compiler.npu.place.place import Placement
from tilewright.isa.program import Layout


@dataclass(frozen=True)
class Chain:
    """Nodes that run on the NPU in one pass: a head, and the QAdd and QLut behind it that nobody else waits for."""

    head: Node
    tail: tuple[Node, ...] = ()

    @property
    def op(self) -> NpuOp[Any]:
        """The op by which the NPU runs the head."""
        return _needed_op(self.head)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.head, *self.tail)

    @property
    def result(self) -> str:
        """The tensor that the chain makes."""
        return self.nodes[-1].outputs[0]

    def __str__(self) -> str:
        return f"NPU  {' + '.join(f'{n.op} {n.name or n.outputs[0]}' for n in self.nodes)}"


#: What there is to do, in an order that works: chains for the NPU, nodes for the CPU.
Work = Sequence[Chain | Node]


def fuse_tails(wiring: Wiring, placement: Placement, *, fuse: bool = True) -> list[Chain | Node]:
    """Chains of the NPU's nodes, and the order of all work.

    Nodes that only move data are left out: they are done where a reader turns out to need it.

    Args:
        fuse: False to leave every node a chain of its own.
    """
    tails = _find_tails(wiring, placement) if fuse else {}
    # A chain runs where its last node stands: the tail's other operand is there by then.
    heads = {tail[-1].outputs[0]: head for head, tail in tails.items()}
    inside = {node.outputs[0] for tail in tails.values() for node in tail}
    work: list[Chain | Node] = []
    for node in wiring.graph.nodes:
        name = node.outputs[0]
        if not placement.on_npu(node):
            if node.op not in MOVES:
                work.append(node)
        elif name in heads:
            head = heads[name]
            work.append(Chain(wiring.producers[head], tuple(tails[head])))
        elif name not in inside and name not in tails:
            work.append(Chain(node))
    return work


def verify_work(work: Work, wiring: Wiring, placement: Placement) -> None:
    """Raises `CompileError` unless every node is placed once: in a chain, on the CPU, or as a move left out."""
    nodes = [node for piece in work for node in (piece.nodes if isinstance(piece, Chain) else (piece,))]
    counts = Counter(id(node) for node in nodes)
    for node in wiring.graph.nodes:
        left_out = node.op in MOVES and not placement.on_npu(node)
        if counts[id(node)] != (0 if left_out else 1):
            raise CompileError(f"order of work broken: {node.op} {node.name!r} is done {counts[id(node)]} times")


def _needed_op(node: Node) -> NpuOp[Any]:
    op = npu_op_of(node)
    assert op is not None, node
    return op


def _find_tails(wiring: Wiring, placement: Placement) -> dict[str, list[Node]]:
    """Tails by the head's first output."""
    tails: dict[str, list[Node]] = {}
    taken: set[str] = set()
    # Later heads first: of two convolutions that meet in an Add, the later one takes it.
    for head in reversed(wiring.graph.nodes):
        if not placement.on_npu(head) or head.outputs[0] in taken:
            continue
        op = _needed_op(head)
        takes_add, takes_table = op.takes_add, op.takes_table
        tail: list[Node] = []
        value = head.outputs[0]
        while value not in wiring.graph.outputs:
            readers = wiring.readers(value)
            if len(readers) != 1 or not placement.on_npu(readers[0]) or readers[0].outputs[0] in taken:
                break
            reader = readers[0]
            if reader.outputs[0] in tails:  # a head itself, whose own tail goes with it
                break
            if isinstance(reader.quantized, QAdd) and takes_add and _can_add(wiring, head, reader, value):
                takes_add = False
            elif isinstance(reader.quantized, QLut) and takes_table:
                takes_add = takes_table = False
            else:
                break
            tail.append(reader)
            value = reader.outputs[0]
        if tail:
            tails[head.outputs[0]] = tail
            taken.update(node.outputs[0] for node in tail)
    return tails


def _can_add(wiring: Wiring, head: Node, add: Node, value: str) -> bool:
    """True if the Add's other operand is a tensor of the same shape that can be walked along with the head's result."""
    a, b = add.inputs
    if a == b:
        return False
    shape = wiring.shape(add.outputs[0])
    if wiring.shape(value) != shape or wiring.shape(b if a == value else a) != shape:
        return False
    return _needed_op(head).layout is Layout.CHANNELS_LAST or len(shape) in (3, 4)
