"""The placement pass: NPU or CPU for every node, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.graph.ops.kernel import QKernel
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.limits import MAX_NPU_ELEMENTS
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import is_elementwise, is_light, npu_op_of, unsupported_reason
from tilewright.compiler.npu.place.made_weights import becomes_weights
from tilewright.compiler.npu.views import broadcast_ok
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout

if TYPE_CHECKING:  # importing it loads the compiler of CPU kernels
    from tilewright.compiler.npu.place.placement_cost import PlacementCost


class Placement(Struct):
    """The nodes that run on the NPU.

    Attributes:
        npu: the first output of every node that runs there; all others run on the CPU.
        reasons: the reason why a quantised node runs on the CPU, by the node's name (its first output where it has
            none).
    """

    npu: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)

    def on_npu(self, node: Node) -> bool:
        """Returns True if a node runs on the NPU."""
        return node.outputs[0] in self.npu

    def move_to_cpu(self, node: Node, reason: str) -> None:
        """Moves a node to the CPU for a reason.

        Raises:
            CompileError: only a kernel of the user's can run it.
        """
        if isinstance(node.quantized, QKernel):
            op = node.quantized
            raise CompileError(
                f"{op.facts.label} is run by kernel {op.kernel.name} on the NPU, or not at all: {reason}"
            )
        self.npu.discard(node.outputs[0])
        self.reasons[node.name or node.outputs[0]] = reason

    def __str__(self) -> str:
        lines = [f"NPU  {name}" for name in sorted(self.npu)]
        return "\n".join([*lines, *(f"CPU  {name}: {reason}" for name, reason in self.reasons.items())])

    def verify(self, wiring: Wiring) -> None:
        """Checks that the NPU got only quantised nodes, and the CPU none of them without a reason.

        Raises:
            CompileError: a node breaks this.
        """
        nodes = wiring.graph.nodes
        unknown = self.npu - {node.outputs[0] for node in nodes if node.quantized is not None}
        if unknown:
            raise CompileError(f"placement broken: no quantised node makes {', '.join(sorted(unknown))}")
        for node in nodes:
            known = self.on_npu(node) or (node.name or node.outputs[0]) in self.reasons
            if node.quantized is not None and not known:
                raise CompileError(f"placement broken: {node.op} {node.name!r} is on the CPU without a reason")


def place_nodes(
    wiring: Wiring,
    config: NpuConfig,
    *,
    cpu_only: bool = False,
    excluded: Mapping[str, str] | None = None,
    cost: PlacementCost | None = None,
) -> Placement:
    """Decides where every node runs.

    Args:
        wiring: the graph.
        config: the machine.
        cpu_only: True to run everything on the CPU.
        excluded: first outputs of nodes that must run on the CPU, with the reason.
        cost: the times by which light nodes run on the faster side; None to run them on the NPU.
    """
    placement = Placement()
    for node in wiring.graph.nodes:
        reason = "the NPU was switched off" if cpu_only else _reason_against(wiring, node, config, excluded or {})
        if reason is None:
            placement.npu.add(node.outputs[0])
        elif node.quantized is not None:
            placement.move_to_cpu(node, reason)
    _move_single_rows(wiring, config, placement)
    while _move_islands(wiring, placement):
        pass
    if cost is not None:
        for node in wiring.graph.nodes:
            reason = cost.reason_for_cpu(wiring, node, placement.on_npu) if placement.on_npu(node) else None
            if reason is not None:
                placement.move_to_cpu(node, reason)
    return placement


def _reason_against(wiring: Wiring, node: Node, config: NpuConfig, excluded: Mapping[str, str]) -> str | None:
    """Returns the reason why a node cannot run on the NPU, None if it can."""
    reason = unsupported_reason(wiring.graph, node, config)
    if reason is None and _largest(wiring.graph, node) > MAX_NPU_ELEMENTS:
        reason = f"a tensor has {_largest(wiring.graph, node)} elements; up to {MAX_NPU_ELEMENTS} go to the NPU"
    if reason is None and is_elementwise(node):
        reason = _reason_of_operands(wiring, node)
    return excluded.get(node.outputs[0]) if reason is None else reason


def _largest(graph: Graph, node: Node) -> int:
    """Returns the elements of a node's largest operand or result."""
    return max(graph.tensor(name).size for name in (*node.inputs, *node.outputs) if name)


def _reason_of_operands(wiring: Wiring, node: Node) -> str | None:
    """Returns the reason why an elementwise node's operands cannot be broadcast, None if they can."""
    layout = usual_layout(wiring, node)
    out = wiring.shape(node.outputs[0])
    for name in node.inputs:
        t = wiring.tensor(name)
        if not broadcast_ok(t.shape, out, layout, t.is_const):
            return f"operand {name} of shape {list(t.shape)} does not follow channels of {list(out)}"
    if all(wiring.shape(name) != out for name in node.inputs):
        return "no operand has the shape of the result"
    return None


def usual_layout(wiring: Wiring, node: Node) -> Layout:
    """Returns the layout that an elementwise node will most likely work in, before those of its operands are known.

    It is that of a neighbour with a layout of its own, else by rank; channels are last where an operand of a sum or
    product, such as the mask of attention, can be broadcast there only.
    """
    out = wiring.shape(node.outputs[0])
    for name in (*node.inputs, *node.outputs):
        producer = wiring.producers.get(name)
        for neighbour in ([producer] if producer is not None else []) + wiring.readers(name):
            op, rank = npu_op_of(neighbour), len(wiring.shape(name))
            if op is not None and op.layout_of(rank) is Layout.CHANNELS_FIRST:
                return Layout.CHANNELS_FIRST if rank in (3, 4) else Layout.CHANNELS_LAST
    if len(out) != 4 or (is_elementwise(node) and not broadcasts(wiring, node, Layout.CHANNELS_FIRST)):
        return Layout.CHANNELS_LAST
    return Layout.CHANNELS_FIRST


def broadcasts(wiring: Wiring, node: Node, layout: Layout) -> bool:
    """Returns True if all operands of an elementwise node can be broadcast to its result in a layout."""
    out, operands = wiring.shape(node.outputs[0]), [wiring.tensor(name) for name in node.inputs]
    return all(broadcast_ok(t.shape, out, layout, t.is_const) for t in operands)


def _move_single_rows(wiring: Wiring, config: NpuConfig, placement: Placement) -> None:
    """Moves products of a single row with an activation to the CPU, where the second operand is on the CPU.

    A language model that makes one token has such products: the CPU would pack every byte of the operand for the NPU,
    which uses it for one product.
    """
    for node in wiring.graph.nodes:
        if not isinstance(node.quantized, QMatMul) or not placement.on_npu(node):
            continue
        if wiring.tensor(node.inputs[1]).is_const or wiring.shape(node.inputs[0])[-2] != 1:
            continue
        if not becomes_weights(wiring, node, config, placement.on_npu):
            placement.move_to_cpu(node, "of a single row: packing its second operand costs more than the products")


def _move_islands(wiring: Wiring, placement: Placement) -> bool:
    """Moves work to the CPU whose conversions would cost more than the NPU saves.

    These are light nodes between CPU nodes; tables behind a CPU node, which looks the value up where it makes it; and
    ops that pay only if the NPU reads their result.

    Returns:
        True if nodes before one that was moved have to be looked at again.
    """
    again = False
    for node in wiring.graph.nodes:
        if not placement.on_npu(node):
            continue
        op = npu_op_of(node)
        rank = len(wiring.shape(node.outputs[0]))
        if op is not None and op.needs_npu_reader(rank) and not _read_by_npu(wiring, placement, node):
            placement.move_to_cpu(node, "no node of the NPU reads its result")
            again = True
        if not is_light(node):
            continue
        feeds = [wiring.producers.get(name) for name in node.inputs if not wiring.tensor(name).is_const]
        readers = wiring.readers(node.outputs[0])
        # Graph inputs and outputs count as the CPU's, but what stands alone between them is not moved there.
        from_cpu = all((bool(readers) if p is None else not _reaches_npu(wiring, placement, p)) for p in feeds)
        to_cpu = (bool(readers) or None not in feeds) and not any(placement.on_npu(r) for r in readers)
        if feeds and from_cpu and to_cpu:
            placement.move_to_cpu(node, "its neighbours run on the CPU")
        elif isinstance(node.quantized, QLut) and _made_by_cpu(wiring, placement, node.inputs[0]):
            placement.move_to_cpu(node, "the CPU, which makes its operand, looks it up")
    return again


def _made_by_cpu(wiring: Wiring, placement: Placement, name: str) -> bool:
    """Returns True if the CPU computes a tensor for a single reader."""
    maker = wiring.producers.get(name)
    if maker is None or maker.op in MOVES or placement.on_npu(maker):
        return False
    return name not in wiring.graph.outputs and len(wiring.readers(name)) == 1


def _read_by_npu(wiring: Wiring, placement: Placement, node: Node) -> bool:
    """Returns True if a node on the NPU reads the first output of a node, directly or through moves."""
    left, seen = [node.outputs[0]], {node.outputs[0]}
    while left:
        for reader in wiring.readers(left.pop()):
            if placement.on_npu(reader):
                return True
            if reader.op in MOVES:
                left += [name for name in reader.outputs[:1] if name not in seen]
                seen.update(reader.outputs[:1])
    return False


def _reaches_npu(wiring: Wiring, placement: Placement, node: Node) -> bool:
    """Returns True if a node runs on the NPU, or the one whose result it moves does."""
    while node.op in MOVES:
        before = wiring.producers.get(node.inputs[0])
        if before is None:
            return False
        node = before
    return placement.on_npu(node)
