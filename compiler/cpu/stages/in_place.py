"""Places results in the memory of an operand: where a loop reads an operand for the last time, each element just before
it writes that element of a result of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.compiler.cpu.expr import SIZES, Assignment, Buffer, Index, Rewriter, walk
from tilewright.compiler.cpu.stages.stage import LoopStage, RowStage, Stage


def in_place(stages: Sequence[Stage], life: Mapping[Buffer, Sequence[int]]) -> dict[Buffer, Buffer]:
    """The buffer whose memory each in-place result takes.

    Args:
        life: first and last stage of every buffer of the workspace.
    """
    homes: dict[Buffer, Buffer] = {}
    for step, stage in enumerate(stages):
        parts = stage.parts if isinstance(stage, LoopStage | RowStage) else []
        if not parts or len({p.buffer for p in parts if p.buffer.role == "temp" and not p.buffer.private}) != 1:
            continue
        target = parts[-1].buffer
        if target not in life or life[target][0] != step or target.pinned or target.private:
            continue
        for source in dict.fromkeys(e.value[0] for p in parts for e in walk(p.body) if e.op == "load"):
            fits = source.nbytes == target.nbytes and SIZES[source.dtype] == SIZES[target.dtype]
            ends = source in life and life[source][1] == step and not source.pinned and not source.private
            if fits and ends and source not in homes.values() and _element_by_element(parts, source, target):
                homes[target] = source
                break
    return homes


def root(homes: Mapping[Buffer, Buffer], buffer: Buffer) -> Buffer:
    """The buffer whose memory holds a buffer."""
    while buffer in homes:
        buffer = homes[buffer]
    return buffer


def _element_by_element(parts: Sequence[Assignment], source: Buffer, target: Buffer) -> bool:
    """True if no part reads an element of `source` after that element of `target` was written."""
    inner, offset = parts[-1].variables, parts[-1].offset
    written = False
    for variables, body, buffer, _ in parts:
        loads = [e for e in walk(body) if e.op == "load" and e.value[0] is source]
        if written and loads:
            return False
        folds = [e for e in walk(body) if e.op == "reduce"]
        walked = list(variables) or [v for e in folds for v in e.value[1]]
        if loads and (len(walked) != len(inner) or (folds and variables) or len(folds) > 1):
            return False
        if loads:
            same = Rewriter({a: Index.of(b) for a, b in zip(walked, inner)})
            if any(same.index(e.value[1]) != offset for e in loads):
                return False
        written = written or buffer is target
    return True
