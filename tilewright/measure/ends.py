"""Lists the CPU ops before the first, between and behind the last turns of the NPU, each with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.compiler.stages.note_forms import reasons_in
from tilewright.isa.program import CpuStep, NpuStep, Program

_REASONS = {
    "QuantizeLinear": "floats to bytes",
    "DequantizeLinear": "bytes to floats",
    "Relayout": "to or from blocks of channels",
    "SplitBytes": "16 bits to bytes",
    "JoinBytes": "bytes to 16 bits",
    "Gather": "rows are chosen by numbers that only a run knows",
}
_MOVES = {"Reshape", "Transpose", "Slice", "Split", "Concat", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile"}
_MOVED = "moves what the CPU has"
_OTHER = "computes with floats or wide integers; the NPU has bytes"


@dataclass(frozen=True)
class CpuOp:
    """An op that the CPU does.

    Attributes:
        op, name: of the node.
        reason: why it is not the NPU's.
    """

    op: str
    name: str
    reason: str


@dataclass(frozen=True)
class Ends:
    """The CPU's part of a program, by where it stands.

    Attributes:
        entry: of a program with entry points, which of them it is; else "".
        turns: runs of the NPU.
        front, between, behind: ops in the order they run; without a turn of the NPU all are in front.
    """

    entry: str
    turns: int
    front: list[CpuOp]
    between: list[CpuOp]
    behind: list[CpuOp]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        """Returns a line for people for each place where the CPU works."""
        places = (
            ("before the NPU's first turn", self.front), (f"between its {self.turns} turns", self.between),
            ("behind its last turn", self.behind),
        )  # fmt: skip
        name = f"{self.entry}: " if self.entry else ""
        return [f"{name}{place}: {kinds_with_reasons(ops)}" for place, ops in places if ops] if self.turns else []


def kinds_with_reasons(ops: Sequence[CpuOp]) -> str:
    """Ops with the number and the reason of each kind."""
    kinds = Counter((op.op, op.reason) for op in ops)
    return ", ".join(f"{n} {op} ({reason})" for (op, reason), n in kinds.items())


def ends_of(whole: Program) -> list[Ends]:
    """Returns the ends of a program, or of each of its entry points."""
    return [_ends(entry.name, whole.entry(entry.name)) for entry in whole.entries] or [_ends("", whole)]


def _ends(entry: str, program: Program) -> Ends:
    known = reasons_in(program.notes)
    at = [place for place, step in enumerate(program.steps) if isinstance(step, NpuStep)]
    first, last = (at[0], at[-1]) if at else (len(program.steps), len(program.steps))
    found = Ends(entry, len(at), [], [], [])
    for place, step in enumerate(program.steps):
        if isinstance(step, CpuStep):
            ops = found.front if place < first else found.behind if place > last else found.between
            ops += [_described(text, known) for text in step.ops if text]
    return found


def _described(text: str, known: dict[str, str]) -> CpuOp:
    op, _, name = text.partition(" ")
    usual = _REASONS.get(op, _MOVED if op in _MOVES else _OTHER)
    return CpuOp(op, name, known.get(name, usual))
