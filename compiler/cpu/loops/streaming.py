"""Non-temporal stores of large results, past the caches."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.cpu.expr import SIZES, Buffer, Index, Var
from tilewright.compiler.cpu.ir.emitter import Emitter

LINE = 64  # bytes of a cache line
STREAM_BYTES = 16 << 20  # results from this size on are not worth keeping in caches


def emit_past_caches(f: Emitter, buffer: Buffer, nest: Callable[[], None]) -> None:
    """Writes `nest` with stores past the caches where `buffer` starts at a cache line, else with plain ones."""
    address = f.convert("ptrtoint", f.pointer(buffer), "i64")
    aligned = f.icmp("eq", f.and_(address, LINE - 1), 0)
    with f.when(aligned):
        f.streaming = f.streamed = True
        nest()
        f.streaming = False
    with f.when(f.negated(aligned)):
        nest()


def streams(f: Emitter, buffer: Buffer, offset: Index, lane: Var, lanes: int) -> bool:
    """True if the result is larger than the caches and vectors are cache lines: stores past them cost no read."""
    size = SIZES[buffer.dtype]
    steps = [c for atom, c in offset.terms if atom != lane]
    return (
        buffer.role == "output"
        and buffer.nbytes >= STREAM_BYTES
        and lanes * size == LINE == f.module.target.vector_bits // 8
        and all(n * size % LINE == 0 for n in (offset.const, *steps))
    )
