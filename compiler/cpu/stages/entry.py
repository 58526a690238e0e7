"""The entry point of a segment, which calls its functions and synchronises the threads between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.threads import LINE, PART, Sharing, wait_for
from tilewright.compiler.cpu.ir.writer import Operand, Writer, pointer_to
from tilewright.compiler.cpu.stages.proof import Span
from tilewright.compiler.cpu.stages.stage import Call

_BUFFERS, _WORKSPACE, _COUNTER = (pointer_to(f"%{name}") for name in ("buffers", "workspace", "counter"))


POISON = 0x7F  # byte; a large number of every type


class Poison(Struct, frozen=True):
    """Bytes of the workspace to fill with poison, so that a wrong reader computes nonsense."""

    spans: Sequence[Span]


def entry_point(
    module: Module,
    symbol: str,
    steps: Sequence[Call | Poison],
    slots: Mapping[Buffer, int],
    offsets: Mapping[Buffer, int],
    start: int = 0,
) -> str:
    """The definition of `symbol(buffers, workspace)`.

    With several threads each calls the entry point with its number and the address of a counter, 0 at first. The first
    thread clears the counters of all functions, which lie in the workspace from `start` on, and then counts there.

    Args:
        module: module of the functions.
        symbol: its name.
        steps: its calls, in order.
        slots: places in `buffers` of the external buffers.
        offsets: offsets of the other buffers in `workspace`, bytes.
        start: offset of the counters in `workspace`.
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
    if several:
        with w.when(w.icmp("eq", PART, 0)):
            with w.loop(0, counter_bytes(module, steps) // LINE) as k:
                line = w.at("i8", _WORKSPACE, w.add(w.mul(k, LINE), start))
                w.do(f"store volatile <8 x i64> zeroinitializer, ptr {line}, align 8")
            w.do(f"store atomic i64 1, ptr {_COUNTER} seq_cst, align 8")
        wait_for(w, _COUNTER, 1)
    at = start
    for step in steps:
        here = w.at("i8", _WORKSPACE, at)
        if isinstance(step, Poison):
            at += _fill(w, step.spans, here)
        else:
            w.run(f"@{step.name}", [*(made[b] for b in step.buffers), *([PART, here] if several else [])])
            at += module.counters[step.name]
    extra = ", i64 %part, ptr noalias %counter" if several else ""
    return w.text(f"void @{symbol}(ptr noalias %buffers, ptr noalias %workspace{extra}) #1")


def counter_bytes(module: Module, steps: Sequence[Call | Poison]) -> int:
    """Bytes of the threads' counters; 0 for one thread."""
    if module.threads == 1:
        return 0
    return sum(module.counters[step.name] if isinstance(step, Call) else LINE * (1 + module.threads) for step in steps)


def _fill(w: Writer, spans: Sequence[Span], counters: Operand) -> int:
    """Writes poison; returns the bytes of its counters."""
    sharing = Sharing(w, counters)
    with sharing.single_thread():
        for start, end in spans:
            with w.loop(start, end) as i:
                w.do(f"store volatile i8 {POISON}, ptr {w.at('i8', _WORKSPACE, i)}")
    sharing.finish()
    return sharing.nbytes
