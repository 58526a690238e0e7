"""The layouts chosen for the NPU's work, and the tensors that exist in blocked form."""

from __future__ import annotations

import math
from dataclasses import replace

from msgspec import Struct, field

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.npu.blocks.alias import MOVES, alias_of, heads_of, planes_of_rows
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.views import View
from tilewright.isa.program import Layout


class Layouts(Struct):
    """The layout of every chain, and the tensors that exist in blocked form.

    Attributes:
        wiring: producers and consumers of the graph's tensors.
        chosen: the layout a chain works in, by the first output of its head.
        blocked: tensors that chains make; `find` adds aliases of them.
    """

    wiring: Wiring
    chosen: dict[str, Layout] = field(default_factory=dict)
    blocked: dict[str, Blocked] = field(default_factory=dict)

    def of(self, head: Node) -> Layout:
        """Returns the layout of the chain that begins with `head`."""
        return self.chosen[head.outputs[0]]

    def find(self, name: str) -> Blocked | None:
        """Returns the blocked form of a tensor that a chain makes, or an alias through moves that leave bytes in place.

        The result is None for a tensor that exists in plain form only.
        """
        return self._find(name, set())

    def _find(self, name: str, missing: set[str]) -> Blocked | None:
        """Returns the result of `find`; `missing` are names known to have no blocked form, to which the search adds."""
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
        """Returns the columns of a matrix, or of a batch of them, as rows of channels; None if they are not on the NPU.

        Returns:
            (view of the rows, True if they are the rows of the matrix itself and still have to be transposed).
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
        """Returns the blocked form of the matrix that a Transpose of its last two axes turns into tensor `name`.

        The Transpose may be the second half of the split into heads. None if there is no such matrix in blocked form.
        """
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
