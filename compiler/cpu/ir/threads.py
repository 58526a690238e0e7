"""Divides work among threads: each runs the whole function and takes parts of its loops, as many as it gets to.

No thread waits for one that is not running: the others take the parts that one does not, and a late one finds the parts
taken and goes on to where the others are. A function ends when all its parts are done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.writer import Number, Operand, Writer, i64, pointer_to

PART = Operand("%part", "i64")  # the parameter that numbers the thread
COUNTERS = pointer_to("%counters")  # the parameter that points to the counters of the function, 0 at first
LINE = 64  # bytes of a line of the caches, which no two threads should write
SPINS = 500  # looks at a counter before a thread gives way
SCHED_YIELD = 24  # number of the system call, Linux on x86-64
PRIVATE = 1024  # bytes; threads' copies of a buffer start at multiples of it
_PIECES = 4  # parts of a loop for each thread
_CLOSED = 1 << 32  # more than there are threads


def private_bytes(buffer: Buffer) -> int:
    """Bytes between the threads' copies of a private buffer: whole cache lines, and room to read behind the end."""
    return -(-buffer.nbytes // PRIVATE) * PRIVATE + PRIVATE


class Region(NamedTuple):
    """Work in `turns` parts, several times. Its counters: the finished parts, then for each thread and time the parts
    taken of its share.

    Attributes:
        offset: offset of the counters, bytes.
        turns: number of parts.
        apart: bytes from one thread's counters to the next one's.
    """

    offset: int
    turns: int
    apart: int


class Sharing:
    """Division of the work among the threads in the function being written.

    Args:
        writer: writer of the function.
        counters: pointer to its counters.

    Attributes:
        busy: True while a single thread's part is being written.
        nbytes: bytes of the counters.
    """

    def __init__(self, writer: Writer, counters: Operand = COUNTERS) -> None:
        self.writer = writer
        self.threads = writer.module.threads
        self.counters = counters
        self.busy = False
        self.nbytes = 0
        self._ends: list[tuple[Region, int]] = []  # with how many parts are done at the end
        # Where it is counted how many threads are inside `all_threads`, less _CLOSED for each that has finished.
        self._gates: list[int] = []

    @property
    def is_parallel(self) -> bool:
        """True if there are several threads and the work has not been shared yet."""
        return self.threads > 1 and not self.busy

    def region(self, turns: int, times: int = 1) -> Region:
        """Allocates the counters of work in `turns` parts that is done `times` times."""
        apart = -(-8 * times // LINE) * LINE
        found = Region(self.nbytes, turns, apart)
        if self.is_parallel:
            self.nbytes += LINE + self.threads * apart
            self._ends.append((found, turns * times))
        return found

    @contextmanager
    def parallel_loop(self, region: Region, time: Number = 0) -> Iterator[Operand]:
        """Writes the loop over the parts that this thread takes.

        It begins with a share of its own, the same one every time, whose data its caches may still hold, and goes on
        with the remaining parts of the others.
        """
        w, turns = self.writer, region.turns
        if not self.is_parallel:
            with w.loop(0, turns) as i:
                yield i
            return
        self.busy = True
        done = w.at("i8", self.counters, region.offset)
        first_counter = w.at("i8", self.counters, region.offset + LINE)
        with w.loop(0, self.threads) as nth:
            owner = w.urem(w.add(PART, nth), self.threads)
            first, end = (w.udiv(w.mul(v, turns), self.threads) for v in (owner, w.add(owner, 1)))
            counter = w.at("i64", w.at("i8", first_counter, w.mul(owner, region.apart)), time)
            n = w.fresh("C")
            w.jump(f"{n}.head")
            w.label(f"{n}.head")
            turn = w.op(f"atomicrmw add ptr {counter}, i64 1 seq_cst", "i64", f"t{n}")
            i = w.add(turn, first, "", f"i{n}")
            w.branch(w.icmp("slt", i, end, f"c{n}"), f"{n}.body", f"{n}.exit")
            w.label(f"{n}.body")
            with w.scope():
                yield i
            w.op(f"atomicrmw add ptr {done}, i64 1 seq_cst", "i64")
            w.jump(f"{n}.head")
            w.label(f"{n}.exit")
        self.busy = False

    def wait(self, region: Region, least: Number) -> None:
        """Waits until `least` parts of a region are done."""
        if self.is_parallel:
            wait_for(self.writer, self.writer.at("i8", self.counters, region.offset), least)

    def finish(self) -> None:
        """Waits at the function's end until all parts of all regions are done and no thread is in `all_threads`."""
        for region, parts in self._ends:
            self.wait(region, parts)
        for offset in self._gates:
            gate = self.writer.at("i8", self.counters, offset)
            self.writer.op(f"atomicrmw sub ptr {gate}, i64 {_CLOSED} seq_cst", "i64")
            wait_for(self.writer, gate, 0, modulo=_CLOSED)
        self._ends, self._gates = [], []

    @contextmanager
    def divided(self, extent: int, step: int = 1, within: Sequence[tuple[Operand, int]] = ()) -> Iterator[Operand]:
        """`loop(0, extent, step)` shared among the threads.

        Args:
            within: the loops around it, each with its variable and extent.
        """
        w = self.writer
        if not self.is_parallel:
            with w.loop(0, extent, step) as i:
                yield i
            return
        turns = -(-extent // step)
        pieces = min(turns, self.threads * _PIECES)
        time: Number = 0
        for i, n in within:
            time = w.add(w.mul(time, n), i)
        with self.parallel_loop(self.region(pieces, math.prod(n for _, n in within)), time) as piece:
            ends = []
            for k in (piece, w.add(piece, 1, "nuw nsw")):
                share = w.udiv(w.mul(k, turns, "nuw nsw"), pieces)
                ends.append(w.mul(share, step, "nuw nsw"))
            with w.loop(ends[0], ends[1], step) as i:
                yield i

    @contextmanager
    def single_thread(self) -> Iterator[None]:
        """Lets one thread only run the block, the first that comes, unless this is a thread's part already."""
        if not self.is_parallel:
            yield
            return
        w, region = self.writer, self.region(1)
        n = w.fresh("A")
        counter = w.at("i8", self.counters, region.offset + LINE)
        turn = w.op(f"atomicrmw add ptr {counter}, i64 1 seq_cst", "i64", f"t{n}")
        self.busy = True
        with w.when(w.icmp("eq", turn, 0)):
            yield
            w.op(f"atomicrmw add ptr {w.at('i8', self.counters, region.offset)}, i64 1 seq_cst", "i64")
        self.busy = False

    @contextmanager
    def all_threads(self) -> Iterator[None]:
        """Lets every thread run the whole block that comes here before one has finished it: a later one would overwrite
        memory that the others may have reused by then.
        """
        if not self.is_parallel:
            yield
            return
        w, offset = self.writer, self.nbytes
        self.nbytes += LINE
        self._gates.append(offset)
        gate = w.at("i8", self.counters, offset)
        inside = w.op(f"atomicrmw add ptr {gate}, i64 1 seq_cst", "i64", w.fresh("E"))
        self.busy = True
        with w.when(w.icmp("sge", inside, 0)):
            yield
        w.op(f"atomicrmw sub ptr {gate}, i64 1 seq_cst", "i64")
        self.busy = False


def wait_for(w: Writer, counter: Operand, least: Number, modulo: int = 0) -> None:
    """Waits until the int64 at an address is not below a number, or equals it modulo a power of two; after a while it
    yields the processor.
    """
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
    met = w.icmp("eq", w.op(f"and i64 {now}, {modulo - 1}", "i64"), least) if modulo else w.icmp("sge", now, least)
    w.branch(met, go, more)
    w.label(more)
    following = w.add(turn, 1, "", f"{n}.next")
    w.branch(w.icmp("sge", following, SPINS, f"{n}.long"), give_way, spin)
    w.label(give_way)
    if target.triple.startswith("x86_64") and "linux" in target.triple:
        system_call = 'asm sideeffect "syscall", "={rax},{rax},~{rcx},~{r11},~{memory}"'
        w.call(system_call, "i64", [i64(SCHED_YIELD)], f"{n}.gone")
    w.jump(wait)
    w.label(go)
