"""Work shared by threads: each runs the whole function; loops are divided among them, the rest is done by the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.cpu.expr import Buffer
from compiler.cpu.ir.writer import Number, Operand, Writer, i64

PART = Operand("%part", "i64")  # the parameter that numbers the thread
SPINS = 500  # looks at a counter before a thread gives way
SCHED_YIELD = 24  # number of the system call, Linux on x86-64
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
    def claimed(self, extent: int, taken: Operand, finished: Operand) -> Iterator[Operand]:
        """`loop(0, extent)` whose turns the threads take one by one, so that none waits for one that is not running.

        Args:
            taken: address of an int64 of this loop alone, 0 before.
            finished: address of an int64 that counts the turns that are done.
        """
        w = self.writer
        if not self.wanted:
            with w.loop(0, extent) as i:
                yield i
            return
        n = w.fresh("C")
        w.jump(f"{n}.head")
        w.label(f"{n}.head")
        i = w.op(f"atomicrmw add ptr {taken}, i64 1 seq_cst", "i64", f"i{n}")
        w.branch(w.icmp("slt", i, extent, f"c{n}"), f"{n}.body", f"{n}.exit")
        w.label(f"{n}.body")
        self.busy = True
        with w.scope():
            yield i
        self.busy = False
        w.op(f"atomicrmw add ptr {finished}, i64 1 seq_cst", "i64")
        w.jump(f"{n}.head")
        w.label(f"{n}.exit")

    @contextmanager
    def alone(self, number: int = 0) -> Iterator[None]:
        """Done by one thread only, the first by default, unless this is a thread's share already."""
        if not self.wanted:
            yield
            return
        self.busy = True
        with self.writer.when(self.writer.icmp("eq", PART, number)):
            yield
        self.busy = False

    @contextmanager
    def everyone(self) -> Iterator[None]:
        """Done whole by every thread that comes here."""
        before, self.busy = self.busy, True
        yield
        self.busy = before


def meet(w: Writer, counter: Operand, arrivals: Number) -> None:
    """Waits until all threads are here.

    Args:
        counter: address of an int64 that every thread adds 1 to at every meeting.
        arrivals: its value when all are at this one.
    """
    w.op(f"atomicrmw add ptr {counter}, i64 1 seq_cst", "i64")
    wait_for(w, counter, arrivals)


def wait_for(w: Writer, counter: Operand, least: Number) -> None:
    """Waits until the int64 at an address is not below a number; after a while it lets others have the processor."""
    target, n = w.module.target, w.fresh("M")
    wait, spin, more, give_way, go = (f"{n}.{name}" for name in ("wait", "spin", "more", "yield", "go"))
    w.jump(wait)
    w.label(wait)
    w.jump(spin)
    w.label(spin)
    turn = w.phi("i64", [(0, wait), (f"%{n}.next", more)], f"{n}.turn")
    if target.triple.startswith("x86"):
        w.run(w.declared("@llvm.x86.sse2.pause", "void"), [])
    now = w.op(f"load atomic i64, ptr {counter} seq_cst, align 8", "i64", f"{n}.now")
    w.branch(w.icmp("sge", now, least, f"{n}.met"), go, more)
    w.label(more)
    following = w.add(turn, 1, "", f"{n}.next")
    w.branch(w.icmp("sge", following, SPINS, f"{n}.long"), give_way, spin)
    w.label(give_way)
    if target.triple.startswith("x86_64") and "linux" in target.triple:
        system_call = 'asm sideeffect "syscall", "={rax},{rax},~{rcx},~{r11},~{memory}"'
        w.call(system_call, "i64", [i64(SCHED_YIELD)], f"{n}.gone")
    w.jump(wait)
    w.label(go)
