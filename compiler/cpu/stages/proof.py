"""Proof of a workspace: no kernel reads bytes that another one has written over.

It follows the calls in order and knows for every buffer whether its bytes are still its own. Reads and writes of the
kernels are found in their text, not taken from the planner, whose lifetimes are not used here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.accesses import accesses
from tilewright.compiler.cpu.stages.stage import Call
from tilewright.compiler.errors import CompileError


class Uses(Struct, frozen=True):
    """Buffers of the workspace that one kernel reads and writes."""

    label: str
    read: list[Buffer]
    written: list[Buffer]


def uses_of(label: str, call: Call, functions: Mapping[str, str]) -> Uses:
    """The buffers that a call reads and writes, by the text of its function."""
    found = accesses(f"@{call.name}", functions)
    pick = lambda numbers: [b for k, b in enumerate(call.buffers) if k in numbers and b.role == "temp"]
    return Uses(label, pick(found.read), pick(found.written))


Span = tuple[int, int]  # first byte and end


def prove(uses: Sequence[Uses], calls: Sequence[Call], places: Mapping[Buffer, Span], size: int) -> list[list[Span]]:
    """Proves that no buffer's bytes are used after they became another one's. Raises `CompileError`.

    Args:
        uses: uses of every kernel before buffers were given the memory of others.
        calls: calls of the final kernels.
        places: position of every buffer in the workspace.
        size: size of the workspace, bytes.

    Returns:
        For every kernel the bytes without a later reader.
    """
    for b, (start, end) in places.items():
        if start < 0 or end > size:
            raise CompileError(f"workspace broken: buffer {_name(b)} lies outside its {size} bytes")
    last = {b: step for step, use in enumerate(uses) for b in (*use.read, *use.written)}
    born: set[Buffer] = set()  # buffers that have been written
    own: set[Buffer] = set()  # those of them whose bytes are still theirs
    dead: list[list[Span]] = []
    for step, (use, call) in enumerate(zip(uses, calls, strict=True)):
        where = f"kernel {step} ({use.label})"
        passed = [places[b] for b in call.buffers if b.role == "temp"]
        if {places[b] for b in (*use.read, *use.written)} - {*passed}:
            raise CompileError(f"workspace broken: {where} is not given all the memory it needs")
        for b in use.read:
            if b not in own and b not in use.written:
                raise CompileError(f"workspace broken: {where} reads buffer {_name(b)} whose bytes are not its own")
        for b in use.written:
            if b in born and b not in own:
                raise CompileError(f"workspace broken: {where} goes on writing {_name(b)} whose bytes are not its own")
            own -= _overwritten(b, use, own, places, passed, where)
            own.add(b)
            born.add(b)
        gone = {b for b in own if last[b] == step}
        own -= gone
        dead.append(sorted(places[b] for b in gone))
    return dead


def _overwritten(
    b: Buffer, use: Uses, own: set[Buffer], places: Mapping[Buffer, Span], passed: Sequence[Span], where: str
) -> set[Buffer]:
    """Buffers that lose their bytes when `b` is written; none of them may be in use by the same kernel.

    The exception is an operand in whose place a result is: that is exactly the same memory, and one parameter of the
    kernel.
    """
    others = {o for o in (*own, *use.read, *use.written) if o is not b and _overlap(places[o], places[b])}
    for other in others & {*use.read, *use.written}:
        if other in use.written or places[other] != places[b] or passed.count(places[b]) != 1:
            raise CompileError(f"workspace broken: {where} uses {_name(b)} and {_name(other)} in one place")
    return others


def _overlap(a: Span, b: Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _name(b: Buffer) -> str:
    return f"{b.name or 'unnamed'} of {b.size} {b.dtype}"
