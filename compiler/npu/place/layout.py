"""The layout pass: chooses the layout of every chain, and the views of the tensors that follow from it."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.states import blocked_shape
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.blocks.layouts import Layouts
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.place.place import broadcasts, usual_layout
from tilewright.compiler.npu.place.tails import Chain, WorkOrder
from tilewright.compiler.npu.views import dense_view, planes_of
from tilewright.isa.program import ARENA_REGION, Layout


def choose_layouts(wiring: Wiring, work: WorkOrder, block: int) -> Layouts:
    """Chooses the layout of every chain, in the order of work.

    Args:
        wiring: the graph.
        work: chains and nodes in order.
        block: lanes of a channel block.
    """
    layouts = Layouts(wiring, blocked=blocked_states(wiring.graph))
    for chain in work:
        if isinstance(chain, Chain) and isinstance(chain.head.quantized, QPut):
            layouts.chosen[chain.head.outputs[0]] = Layout.CHANNELS_LAST  # in place, in the memory of its state
        elif isinstance(chain, Chain):
            rank = len(wiring.shape(chain.head.outputs[0]))
            layout = chain.op.layout_of(rank) or _layout_of_operands(wiring, layouts, chain.head)
            name = chain.result
            dims, nbytes = planes_of(wiring.shape(name), layout), wiring.tensor(name).dtype.itemsize
            view = dense_view(name, f"{name}@{layout}", ARENA_REGION, dims, block, nbytes)
            layouts.chosen[chain.head.outputs[0]] = layout
            layouts.blocked[name] = Blocked(layout, view)
    return layouts


def blocked_states(graph: Graph) -> dict[str, Blocked]:
    """Returns the states that are kept in blocks as views of these, by the names of the tensors they are to others."""
    found = {}
    for state in graph.states:
        if state.plain:
            dims, lanes = (
                planes_of(graph.tensor(state.plain).shape, Layout.CHANNELS_LAST),
                blocked_shape(graph, state)[-1],
            )
            view = dense_view(state.plain, state.end, ARENA_REGION, dims, lanes)
            found[state.plain] = Blocked(Layout.CHANNELS_LAST, view, alias=True)
    return found


def _layout_of_operands(wiring: Wiring, layouts: Layouts, node: Node) -> Layout:
    """Returns the layout of a node whose op has none of its own.

    It is that of a full-size operand, if the others can be broadcast in it; for a concatenation that of its largest
    operand; else `usual_layout`.
    """
    if isinstance(node.quantized, QConcat):
        there = [(wiring.tensor(name).size, found) for name in node.inputs if (found := layouts.find(name)) is not None]
        return max(there, key=lambda pair: pair[0])[1].layout if there else usual_layout(wiring, node)
    out = wiring.shape(node.outputs[0])
    for name in node.inputs:
        found = layouts.find(name)
        if found is not None and wiring.shape(name) == out and broadcasts(wiring, node, found.layout):
            return found.layout
    return usual_layout(wiring, node)
