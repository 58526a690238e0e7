"""The layouts chosen for the NPU's work, and the tensors that are there in blocked form."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.npu.blocks.alias import MOVES, alias_of, heads_of, planes_of_rows
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.views import View
from tilewright.isa.program import Layout


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
        return self._find(name, set())

    def _find(self, name: str, missing: set[str]) -> Blocked | None:
        """Does what `find` does; names in `missing` are known to have no blocked form."""
        if name in self.blocked or name in missing:
            return self.blocked.get(name)
        move = self.wiring.producers.get(name)
        if move is None or move.op not in MOVES:
            return None
        source = self._find(move.inputs[0], missing)
        graph, before = self.wiring.graph, self.wiring.producers.get(move.inputs[0])
        alias = None if source is None else alias_of(graph, move, name, source)
        if alias is None and before is not None and before.op in MOVES:  # two moves may leave what one does not
            source = self._find(before.inputs[0], missing)
            if source is not None:
                alias = heads_of(graph, before, move, source) or planes_of_rows(graph, before, move, source)
        if alias is None:
            missing.add(name)
        else:
            self.blocked[name] = alias
        return alias

    def columns(self, name: str) -> tuple[View, bool] | None:
        """The columns of a matrix or several, as rows of channels that the NPU has; None if it does not.

        Returns:
            (rows, whether these are the rows of the matrix itself, and rows and channels have to be exchanged first).
        """
        (k, n), count = self.wiring.shape(name)[-2:], math.prod(self.wiring.shape(name)[:-2])
        for found, dims, exchanged in (
            (self._find_columns(name), (count, k, 1, n), False),
            (self.find(name), (count, n, 1, k), True),
        ):
            if found is not None and found.layout is Layout.CHANNELS_LAST:
                v = found.view
                # Lanes that hold no channels may hold anything.
                if (v.n, v.c, v.h, v.w) == dims and (exchanged or k % v.block == 0):
                    return v, exchanged
        return None

    def _find_columns(self, name: str) -> Blocked | None:
        """The blocked form of a matrix or several whose rows are the columns of tensor `name`: of what a Transpose
        exchanges the last two axes of, alone or behind the division into heads."""
        graph, move = self.wiring.graph, self.wiring.producers.get(name)
        if move is None or move.op != "Transpose":
            return None
        perm = permutation(move)
        perm[-2:] = perm[:-3:-1]
        if perm == sorted(perm):
            return self.find(move.inputs[0])
        before = self.wiring.producers.get(move.inputs[0])
        source = self.find(before.inputs[0]) if before is not None and before.op in MOVES else None
        if before is None or source is None:
            return None
        rows = Node("Transpose", move.inputs, [f"{name}@columns"], {"perm": perm})
        return heads_of(graph, before, rows, source, replace(graph.tensor(name), name=rows.outputs[0]))

    def __str__(self) -> str:
        lines = []
        for name, found in self.blocked.items():
            v = found.view
            what = f"alias of {v.buffer}" if found.alias else v.buffer
            lines.append(f"{name}: {what} [{v.n} {v.cb} {v.h} {v.w} {v.block}]")
        return "\n".join(lines)
