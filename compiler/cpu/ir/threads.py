"""Work shared by threads: each runs the whole function; loops are divided among them, the rest is done by the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.cpu.expr import Buffer
from compiler.cpu.ir.writer import Operand, Writer

PART = Operand("%part", "i64")  # the parameter that numbers the thread
PRIVATE = 1024  # bytes; threads' copies of a buffer start at multiples of it


def private_bytes(buffer: Buffer) -> int:
    """From one thread's copy of a private buffer to the next: whole lines, and room to read behind the end."""
    return -(-buffer.nbytes // PRIVATE) * PRIVATE + PRIVATE


class Sharing:
    """How the threads share what is being written.

    Args:
        writer: of the function.

    Attributes:
        busy: what is written now is one thread's share already.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.threads = writer.module.threads
        self.busy = False

    @property
    def wanted(self) -> bool:
        """There are several threads, and the work has not been shared yet."""
        return self.threads > 1 and not self.busy

    @contextmanager
    def divided(self, extent: int, step: int = 1) -> Iterator[Operand]:
        """`loop(0, extent, step)` shared among the threads."""
        w = self.writer
        if not self.wanted:
            with w.loop(0, extent, step) as i:
                yield i
            return
        turns = -(-extent // step)
        ends = []
        for part in (PART, w.add(PART, 1, "nuw nsw")):
            share = w.udiv(w.mul(part, turns, "nuw nsw"), self.threads)
            ends.append(w.mul(share, step, "nuw nsw"))
        self.busy = True
        with w.loop(ends[0], ends[1], step) as i:
            yield i
        self.busy = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Done by the first thread only, unless this is a thread's share already."""
        if not self.wanted:
            yield
            return
        self.busy = True
        with self.writer.when(self.writer.icmp("eq", PART, 0)):
            yield
        self.busy = False

    @contextmanager
    def everyone(self) -> Iterator[None]:
        """Done whole by every thread that comes here."""
        before, self.busy = self.busy, True
        yield
        self.busy = before
