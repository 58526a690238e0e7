"""Products of two activations whose second operand the NPU itself makes, and turns into weights."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.blocks.layouts import Layouts
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import npu_op_of
from tilewright.compiler.npu.ops.product import weights_on_npu
from tilewright.compiler.npu.views import dense_view, plane_shape
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION, Layout

OnNpu = Callable[[Node], bool]
"""True for a node that runs on the NPU."""


def becomes_weights(wiring: Wiring, node: Node, config: NpuConfig, on_npu: OnNpu) -> bool:
    """Returns True if the NPU makes the second operand of a product, or its source before moves, and weights of it.

    Args:
        wiring: the graph.
        node: the product.
        config: the machine.
        on_npu: returns True for nodes that run on the NPU.
    """
    name = node.inputs[1]
    maker, states = wiring.producers.get(name), {state.plain for state in wiring.graph.states}
    while maker is not None and maker.op in MOVES and name not in states:
        name = maker.inputs[0]
        maker = wiring.producers.get(name)
    if name in states:
        return True  # keys and values as they are kept
    op = npu_op_of(maker) if maker is not None and on_npu(maker) else None
    if op is None:
        return False
    shape, x, b = wiring.shape(name), wiring.tensor(node.inputs[0]), wiring.tensor(node.inputs[1])
    given = op.layout_of(len(shape))
    for layout in Layout if given is None else (given,):
        planes = plane_shape(shape, layout)
        if planes is not None:
            view = dense_view(name, name, ARENA_REGION, planes, config.block_in)
            layouts = Layouts(wiring, blocked={name: Blocked(layout, view)})
            if weights_on_npu(config, x, b, layouts.columns) is not None:
                return True
    return False
