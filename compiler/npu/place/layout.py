"""Which layout every chain works in, and the blocked form of the tensors that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.graph import Node
from compiler.npu.place.alias import alias_of
from compiler.npu.place.blocked import Blocked
from compiler.npu.place.kinds import KINDS, MOVES
from compiler.npu.place.place import usual_layout
from compiler.npu.place.tails import Chain, Work
from compiler.npu.place.wiring import Wiring
from compiler.npu.support import broadcast_ok
from compiler.npu.views import dense_view, planes_of
from isa.program import ARENA_REGION, Layout


@dataclass
class Layouts:
    """The layouts chosen, and the tensors that are there in blocked form.

    Attributes:
        chosen: the layout a chain works in, by the first output of its head.
        blocked: tensors that chains make; aliases of them are added when somebody asks for one.
    """

    wiring: Wiring
    chosen: dict[str, Layout] = field(default_factory=dict)
    blocked: dict[str, Blocked] = field(default_factory=dict)

    def of(self, head: Node) -> Layout:
        return self.chosen[head.outputs[0]]

    def find(self, name: str) -> Blocked | None:
        """The blocked form of a tensor: made by a chain, or an alias through moves that leave the bytes in place."""
        if name in self.blocked:
            return self.blocked[name]
        move = self.wiring.producers.get(name)
        if move is None or move.op not in MOVES:
            return None
        source = self.find(move.inputs[0])
        if source is None:
            return None
        alias = alias_of(move, self.wiring.tensor(move.inputs[0]), self.wiring.tensor(name), source)
        if alias is not None:
            self.blocked[name] = alias
        return alias

    def __str__(self) -> str:
        lines = []
        for name, found in self.blocked.items():
            v = found.view
            what = f"alias of {v.buffer}" if found.alias else v.buffer
            lines.append(f"{name}: {what} [{v.n} {v.cb} {v.h} {v.w} {v.block}]")
        return "\n".join(lines)


def choose_layouts(wiring: Wiring, work: Work, block: int) -> Layouts:
    """Chooses the layout of every chain, in the order of work.

    Args:
        block: lanes of a channel block.
    """
    layouts = Layouts(wiring)
    for chain in work:
        if isinstance(chain, Chain):
            layout = KINDS[chain.head.op].layout or _layout_of_operands(wiring, layouts, chain.head)
            name = chain.result
            view = dense_view(name, f"{name}@{layout}", ARENA_REGION, planes_of(wiring.shape(name), layout), block)
            layouts.chosen[chain.head.outputs[0]] = layout
            layouts.blocked[name] = Blocked(layout, view)
    return layouts


def _layout_of_operands(wiring: Wiring, layouts: Layouts, node: Node) -> Layout:
    """The layout an elementwise node works in: a full-size operand's, if the others can be walked along with it."""
    out = wiring.shape(node.outputs[0])
    for name in node.inputs:
        found = layouts.find(name)
        if found is not None and wiring.shape(name) == out:
            operands = [wiring.tensor(n) for n in node.inputs]
            if all(broadcast_ok(t.shape, out, found.layout, t.is_const) for t in operands):
                return found.layout
    return usual_layout(wiring, node)
