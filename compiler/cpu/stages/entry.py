"""The entry point of a segment: it calls the functions, between which the threads meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.cpu.expr import Buffer
from compiler.cpu.ir.module import Module
from compiler.cpu.ir.threads import PART, Sharing, meet
from compiler.cpu.ir.writer import Operand, Writer, pointer_to
from compiler.cpu.stages.proof import Span
from compiler.cpu.stages.stage import Call

_BUFFERS, _WORKSPACE, _COUNTER = (pointer_to(f"%{name}") for name in ("buffers", "workspace", "counter"))


POISON = 0x7F  # byte; a large number of every type


@dataclass(frozen=True)
class Poison:
    """Bytes of the workspace to be filled, so that whoever reads them nevertheless computes nonsense."""

    spans: Sequence[Span]


def entry_point(
    module: Module,
    symbol: str,
    steps: Sequence[Call | Poison],
    slots: Mapping[Buffer, int],
    offsets: Mapping[Buffer, int],
) -> str:
    """The definition of `symbol(buffers, workspace)`.

    With several threads each calls it with its number and the address of a counter, 0 at first, at which they meet
    after every call.

    Args:
        module: of the functions.
        symbol: its name.
        steps: what it calls, in order.
        slots: places in `buffers` of the buffers that come from outside.
        offsets: of the other buffers in `workspace`, bytes.
    """
    w = Writer(module)
    several = module.threads > 1
    made: dict[Buffer, Operand] = {}
    calls = [step for step in steps if isinstance(step, Call)]
    for n, b in enumerate(dict.fromkeys(b for call in calls for b in call.buffers)):
        if b in offsets:
            made[b] = w.at("i8", _WORKSPACE, offsets[b], f"b{n}")
        else:
            made[b] = w.load("ptr", w.at("ptr", _BUFFERS, slots[b], f"q{n}"), 8, f"b{n}")
    for number, step in enumerate(steps):
        if isinstance(step, Poison):
            _fill(w, step.spans)
        else:
            w.run(f"@{step.name}", [*(made[b] for b in step.buffers), *([PART] if several else [])])
        if several:
            meet(w, _COUNTER, (number + 1) * module.threads)
    extra = ", i64 %part, ptr noalias %counter" if several else ""
    return w.text(f"void @{symbol}(ptr noalias %buffers, ptr noalias %workspace{extra}) #1")


def _fill(w: Writer, spans: Sequence[Span]) -> None:
    with Sharing(w).alone():
        for start, end in spans:
            with w.loop(start, end) as i:
                w.do(f"store volatile i8 {POISON}, ptr {w.at('i8', _WORKSPACE, i)}")
