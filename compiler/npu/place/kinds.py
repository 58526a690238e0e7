"""What placing has to know of every op: which layout it works in, and what it can take into its pass."""

from __future__ import annotations

from dataclasses import dataclass

from isa.program import Layout


@dataclass(frozen=True)
class Kind:
    """An op that the NPU has.

    Attributes:
        layout: that it works in; None for elementwise ops, which work in the layout of their operands.
        takes_add: a QAdd behind it can run in the same pass over the data.
        takes_table: so can a QLut.
    """

    layout: Layout | None
    takes_add: bool = False
    takes_table: bool = False


_FIRST, _LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST

KINDS: dict[str, Kind] = {
    "QConv": Kind(_FIRST, takes_add=True, takes_table=True),
    "QConvTranspose": Kind(_FIRST, takes_add=True, takes_table=True),
    "QMatMul": Kind(_LAST, takes_add=True, takes_table=True),
    "QAveragePool": Kind(_FIRST, takes_add=True, takes_table=True),
    "QGlobalAveragePool": Kind(_FIRST),
    "QMaxPool": Kind(_FIRST, takes_table=True),
    "QConcat": Kind(_FIRST),
    "QAdd": Kind(None, takes_table=True),
    "QMul": Kind(None, takes_table=True),
    "QLut": Kind(None),
}

#: Ops that only rearrange a tensor: where the blocked bytes stay where they are, they cost nothing.
MOVES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"})


def is_elementwise(op: str) -> bool:
    """True for ops of the NPU without a layout of their own."""
    kind = KINDS.get(op)
    return kind is not None and kind.layout is None
