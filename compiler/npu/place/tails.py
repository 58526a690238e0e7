"""The tail pass: Adds and tables join the node before them, so that one pass over the data does both.

The order of work follows from the chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import NpuOp, npu_op_of
from tilewright.compiler.npu.ops.tail import keeps_bytes
from tilewright.compiler.npu.place.place import Placement
from tilewright.compiler.npu.views import broadcast_ok
from tilewright.isa.program import Layout


class Chain(Struct, frozen=True):
    """Nodes that run on the NPU in one pass.

    Attributes:
        head: the first node.
        tail: the QAdd and QLut behind it, each the only reader of the node before.
    """

    head: Node
    tail: tuple[Node, ...] = ()

    @property
    def op(self) -> NpuOp[Any]:
        """The op by which the NPU runs the head."""
        return _needed_op(self.head)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The head and its tail."""
        return (self.head, *self.tail)

    @property
    def result(self) -> str:
        """The name of the tensor that the chain makes."""
        return self.nodes[-1].outputs[0]

    def __str__(self) -> str:
        return f"NPU  {' + '.join(f'{n.op} {n.name or n.outputs[0]}' for n in self.nodes)}"


#: Chains for the NPU and nodes for the CPU, in an order in which operands come first.
WorkOrder = Sequence[Chain | Node]


def fuse_tails(wiring: Wiring, placement: Placement, *, fuse: bool = True) -> list[Chain | Node]:
    """Returns the chains of the NPU's nodes and the nodes of the CPU, in an order in which operands come first.

    Nodes that only move data are left out: `Converter` runs them where the moved bytes are read.

    Args:
        wiring: the graph.
        placement: the nodes that run on the NPU.
        fuse: False to make every node a chain of its own.
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


def verify_work(work: WorkOrder, wiring: Wiring, placement: Placement) -> None:
    """Checks that every node of the graph is done once: in a chain, on the CPU, or as a move that is left out.

    Raises:
        CompileError: a node is missing or done twice.
    """
    nodes = [node for piece in work for node in (piece.nodes if isinstance(piece, Chain) else (piece,))]
    counts = Counter(id(node) for node in nodes)
    for node in wiring.graph.nodes:
        left_out = node.op in MOVES and not placement.on_npu(node)
        if counts[id(node)] != (0 if left_out else 1):
            raise CompileError(f"order of work broken: {node.op} {node.name!r} is done {counts[id(node)]} times")


def _needed_op(node: Node) -> NpuOp[Any]:
    """Returns the op by which the NPU runs a node that is known to have one."""
    op = npu_op_of(node)
    assert op is not None, node
    return op


def _find_tails(wiring: Wiring, placement: Placement) -> dict[str, list[Node]]:
    """Returns the tails, by their head's first output."""
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
                if not keeps_bytes(wiring.graph, reader):
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
    """Returns True if VECTOR can walk the Add's other operand beside the head's result.

    It has the same shape, or is repeated for all images, rows or columns, such as a mask for all heads.
    """
    a, b = add.inputs
    if a == b:
        return False
    shape, other = wiring.shape(add.outputs[0]), wiring.shape(b if a == value else a)
    if wiring.shape(value) != shape:
        return False
    last = _needed_op(head).layout is Layout.CHANNELS_LAST
    if other == shape:
        return last or len(shape) in (3, 4)
    return last and broadcast_ok(other, shape, Layout.CHANNELS_LAST, const=False)
