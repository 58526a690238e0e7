"""The proofs: what is stated, how far it holds, and a deliberate fault that each property must find."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hw.formal import benches, register_benches
from hw.formal.bench import Bench
from hw.formal.engine import FormalError, Model
from isa.config import NpuConfig


@dataclass(frozen=True)
class Fault:
    """Text `old`, there once in a module, replaced by `new` in the methods of a class; found within `depth` cycles."""

    where: str  # module:class
    old: str
    new: str
    depth: int = 8


@dataclass(frozen=True)
class Property:
    """One line that says what holds in every cycle."""

    name: str
    statement: str
    fault: Fault


@dataclass(frozen=True)
class Proof:
    """A bench and how it is proved: by induction over `cycles` (unbounded), or for the first `cycles` after reset."""

    name: str
    bench: Callable[..., Bench]
    induction: bool
    cycles: int
    properties: tuple[Property, ...]
    quick: bool = True  # part of the tests; the others run with `make formal`

    @property
    def bound(self) -> str:
        return f"unbounded, induction over {self.cycles}" if self.induction else f"{self.cycles} cycles"


_WALK, _READ, _WRITE = "hw.bursts:BurstWalker", "hw.axi_read:AxiRead", "hw.axi_write:AxiWrite"
_REGISTERS = "hw.registers:Registers"
_NO_BOUNDARY = Fault(_WALK, "c.burst_beats - cut_address[:beat_bits]", "c.burst_beats", 7)
_NO_WINDOW = Fault(_WALK, "(end <= self.size)", "(now < self.size)", 7)

PROOFS: tuple[Proof, ...] = (
    Proof(
        "queue",
        benches.queue,
        True,
        1,
        (
            Property(
                "order",
                "the entry at the output is the oldest one pushed and not popped",
                Fault("hw.queue:Queue", "self.o_payload.eq(read.data)",
                      "self.o_payload.eq(Mux(self.level == 2, 0, read.data))"),
            ),
            Property(
                "conservation",
                "`level` counts pushes minus pops: nothing is lost or there twice",
                Fault("hw.queue:Queue", "with m.If(push & ~pop):", "with m.If(push):"),
            ),
            Property(
                "overflow",
                "never more than `depth` entries; it takes entries exactly while there is room",
                Fault("hw.queue:Queue", "held.eq(1), full.eq(self.level == self.depth - 1)]",
                      "held.eq(1), full.eq(0)]"),
            ),
        ),
    ),
    Proof(
        "semaphores",
        benches.semaphores,
        True,
        1,
        (
            Property(
                "counted",
                "a counter is the number of gives minus takes: each counts once, whatever the engines do in one cycle",
                Fault("hw.semaphores:Semaphores", "Array(changes)[Cat(given, take[i])]",
                      "Array(changes)[Cat(given[0] | given[1], C(0, 1), given[2:], take[i])]"),
            ),
            Property(
                "not_negative",
                "no counter goes below 0",
                Fault("hw.semaphores:Semaphores", "able[e] & ~Cat(refused).any()", "able[e]"),
            ),
            Property(
                "limit",
                "no counter goes beyond 255 without an error",
                Fault(
                    "hw.semaphores:Semaphores",
                    "beyond[i - 1].eq(total >> SEMAPHORE_LIMIT.bit_length() == 1)",
                    "beyond[i - 1].eq(total > SEMAPHORE_LIMIT + 1)",
                    68,
                ),
            ),
            Property(
                "overflow",
                "the error is raised exactly one cycle after that in which a counter would go beyond 255",
                Fault(
                    "hw.semaphores:Semaphores",
                    "beyond[i - 1].eq(total >> SEMAPHORE_LIMIT.bit_length() == 1)",
                    "beyond[i - 1].eq(total > 3)",
                ),
            ),
            Property(
                "grant",
                "an engine gets its two counts together, when it asks and both are there",
                Fault("hw.semaphores:Semaphores", "~lacks0 & (there & wait1).any()", "~lacks0"),
            ),
            Property(
                "priority",
                "an engine that could have both is refused exactly when a lower one could have one of them, or another "
                "took it in the cycle before",
                Fault("hw.semaphores:Semaphores", "(waits[x] & waits[e])[1:]", "(waits[x] & waits[e])"),
            ),
        ),
    ),
    Proof(
        "axi_read",
        benches.axi_read,
        True,
        1,
        (
            Property(
                "stable",
                "AR: valid stays until ready, address and length do not change",
                Fault(_READ, "(~ar.valid | ar.ready) & owners", "owners"),
            ),
            Property(
                "legal",
                "AR: 1 to `burst_beats` whole beats that do not cross 4 KiB, if the requests are such",
                Fault(_READ, "ar.len.eq(beats - 1)", "ar.len.eq(beats)"),
            ),
            Property(
                "outstanding",
                "at most `read_outstanding` bursts are in flight",
                Fault(_READ, "owners.i_valid.eq(accept)", "owners.i_valid.eq(accept & ~ar.valid)"),
            ),
            Property(
                "accepted",
                "R: a beat for FETCH, and after a halt any beat, is taken at once; one for LOAD when LOAD takes it",
                Fault(_READ, "self.halt | ~owner | load.beat_ready", "~owner | load.beat_ready"),
            ),
        ),
    ),
    Proof(
        "axi_write",
        benches.axi_write,
        True,
        1,
        (
            Property(
                "aw_stable",
                "AW: valid stays until ready, address and length do not change",
                Fault(_WRITE, "& room & (~aw.valid | aw.ready)", "& room"),
            ),
            Property(
                "w_stable",
                "W: valid stays until ready; data, strobes and WLAST do not change",
                Fault(_WRITE, "room.eq(~w.valid | w.ready)", "room.eq(1)"),
            ),
            Property(
                "legal",
                "AW: 1 to `burst_beats` whole beats that do not cross 4 KiB, if the bursts are such",
                Fault(_WRITE, "aw.len.eq(self.burst_beats - 1)", "aw.len.eq(self.burst_beats)"),
            ),
            Property(
                "no_orphan",
                "every W beat belongs to a burst that is or was on AW, bursts do not overlap",
                Fault(_WRITE, "with m.If(self.step | dummy):", "with m.If(self.step | dummy | self.halt):"),
            ),
            Property(
                "wlast",
                "WLAST is with the last beat of a burst and no other, after a halt too",
                Fault(_WRITE, "w.last.eq(beats == 1)", "w.last.eq(beats <= 2)"),
            ),
            Property(
                "outstanding",
                "at most `write_outstanding` bursts wait for their response",
                Fault(_WRITE, "& self.burst_valid & pending.i_ready & ~self.halt", "& self.burst_valid & ~self.halt"),
            ),
            Property(
                "b_accepted",
                "B: a response is taken within `write_outstanding` cycles (SYNCs before it complete first)",
                Fault(_WRITE, "b.ready.eq(~at_null)", "b.ready.eq(~pending.o_valid)"),
            ),
        ),
    ),
    Proof(
        "write_drain",
        benches.write_drain,
        False,
        12,
        (
            Property(
                "ends",
                "after a halt a begun burst gets its AW and all its beats, one per cycle if the memory takes them",
                Fault(_WRITE, "dummy.eq(self.halt & room & self.in_burst)", "dummy.eq(0)"),
            ),
        ),
    ),
    Proof(
        "load_accepts",
        benches.load_accepts,
        False,
        14,
        (
            Property(
                "accepted",
                "R: LOAD takes every beat within 5 cycles (boxes without padding, VECTOR holds a bank for one cycle)",
                Fault("hw.load_data:LoadData", "self.beat_ready.eq(takes)",
                      "self.beat_ready.eq(takes & ~unaligned)", 16),
            ),
        ),
    ),
    Proof(
        "load_window",
        benches.load_window,
        True,
        2,
        (
            Property(
                "window",
                "LOAD: arbitrary instructions, eight arbitrary regions: bursts lie in the readable region they name",
                _NO_WINDOW,
            ),
            Property("legal", "LOAD: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB", _NO_BOUNDARY),
            Property(
                "request",
                "LOAD: what it asks the read port for is what was checked",
                Fault("hw.load:Load", "self.read.address.eq(walker.o_address)",
                      "self.read.address.eq(walker.o_address ^ walker.base)"),
            ),
        ),
        quick=False,
    ),
    Proof(
        "store_window",
        benches.store_window,
        True,
        2,
        (
            Property(
                "window",
                "STORE: arbitrary instructions, eight arbitrary regions: bursts lie in the writable region they name",
                Fault("hw.store:Store", "walker.allowed.eq(allowed)", "walker.allowed.eq(1)", 8),
            ),
            Property("legal", "STORE: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB", _NO_BOUNDARY),
        ),
        quick=False,
    ),
    Proof(
        "walker",
        benches.walker,
        True,
        1,
        (
            Property("window", "every burst of an arbitrary box lies in its region, or is not asked for", _NO_WINDOW),
            Property("legal", "bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB", _NO_BOUNDARY),
        ),
        quick=False,
    ),
    Proof(
        "fetch_window",
        benches.fetch_window,
        True,
        1,
        (
            Property(
                "window",
                "FETCH: arbitrary program registers, program and region: bursts lie in the readable region",
                Fault("hw.fetch:Fetch", "Mux(whole < self.length, 0, self.length)", "self.length", 6),
            ),
            Property(
                "legal",
                "FETCH: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
                Fault("hw.fetch:Fetch", "to_end.eq(chunk - address[:chunk_bits])", "to_end.eq(chunk)", 7),
            ),
        ),
    ),
    Proof(
        "constants",
        benches.constants,
        False,
        1,
        (
            Property(
                "incr",
                "NPU: every burst is INCR, every beat has the width of the bus",
                Fault(_WRITE, "aw.burst.eq(BURST_INCR)", "aw.burst.eq(2)", 1),
            ),
        ),
    ),
    Proof(
        "register_writes",
        register_benches.writes,
        True,
        1,
        (
            Property(
                "together",
                "AXI4-Lite: address and data of a write are taken in the same cycle",
                Fault(_REGISTERS, "self.axil.w.ready.eq(write)", "self.axil.w.ready.eq(1)"),
            ),
            Property(
                "b_stable",
                "AXI4-Lite, B: valid stays until ready; the response is OKAY",
                Fault(_REGISTERS, "with m.Elif(self.axil.b.ready):", "with m.Else():", 60),
            ),
            Property(
                "b_answers",
                "AXI4-Lite, B: a response for every write, in the cycle after it is taken; one write at a time",
                Fault(_REGISTERS, "with m.If(write):\n            m.d.sync += self.axil.b.valid",
                      "with m.If(write & ~data[0]):\n            m.d.sync += self.axil.b.valid", 60),
            ),
        ),
    ),
    Proof(
        "register_reads",
        register_benches.reads,
        False,
        60,
        (
            Property(
                "r_stable",
                "AXI4-Lite, R: valid stays until ready, data do not change; the response is OKAY",
                Fault(_REGISTERS, "with m.Elif(self.axil.r.ready):", "with m.Else():", 60),
            ),
            Property(
                "r_answers",
                "AXI4-Lite, R: one answer for each address taken, none before it, and no other address before that",
                Fault(_REGISTERS, "& (~is_counter | shown)", "& (~is_counter | shown) | ~decoded & shown", 60),
            ),
        ),
    ),
    Proof(
        "reset",
        register_benches.reset,
        True,
        2,
        (
            Property(
                "quiet",
                "NPU: no VALID in the first cycle, nor in and after the third of a reset, whatever the state before",
                Fault(_REGISTERS, "with m.If(write):\n            m.d.sync += self.axil.b.valid.eq(1)\n"
                      "        with m.Elif(self.axil.b.ready):\n            m.d.sync += self.axil.b.valid.eq(0)",
                      "m.d.comb += self.axil.b.valid.eq(1)", 2),
            ),
        ),
        quick=False,
    ),
)  # fmt: skip


def _wide(proof: Proof, config: NpuConfig) -> Proof:
    """The same behind a wider bus."""
    bench = functools.partial(proof.bench, c=config)
    return replace(proof, name=f"{proof.name}_{config.axi_data_bits}", bench=bench)


_BY_NAME = {proof.name: proof for proof in PROOFS}
PROOFS += tuple(
    _wide(_BY_NAME[name], config) for name in ("axi_read", "axi_write") for config in (benches.WIDE, benches.WIDEST)
)


@contextlib.contextmanager
def broken(fault: Fault) -> Iterator[None]:
    """While it lasts, the class elaborates with the fault (its constructor is left as it is)."""
    module_name, class_name = fault.where.split(":")
    module = importlib.import_module(module_name)
    owner = getattr(module, class_name)
    text, own = inspect.getsource(module), inspect.getsource(owner)
    if own.count(fault.old) != 1:
        raise FormalError(f"{fault.where}: {fault.old!r} is there {own.count(fault.old)} times")
    names: dict[str, object] = {"__name__": module_name}
    exec(compile(text.replace(own, own.replace(fault.old, fault.new)), str(module.__file__), "exec"), names)
    methods = {n: f for n, f in vars(names[class_name]).items() if inspect.isfunction(f) and not n.startswith("__")}
    originals = {n: vars(owner)[n] for n in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in originals.items():
            setattr(owner, name, method)


@contextlib.contextmanager
def _model(bench: Bench) -> Iterator[Model]:
    with tempfile.TemporaryDirectory(prefix="tilewright-formal-") as folder:
        yield Model(bench.rtlil(), Path(folder))


def prove(proof: Proof) -> None:
    """Raises `FormalError` with smtbmc's last words if a property of the proof fails."""
    bench = proof.bench(None)
    stated = [p.name for p in proof.properties]
    if sorted(stated) != sorted(bench.properties):
        raise FormalError(f"{proof.name}: bench has {bench.properties}, table has {stated}")
    with _model(bench) as model:
        # Induction over k cycles needs the first k cycles as its base.
        good, log = model.bounded(proof.cycles + proof.induction)
        if good and proof.induction:
            good, log = model.induction(proof.cycles)
    if not good:
        raise FormalError(f"{proof.name}: {' '.join(line.strip() for line in log.splitlines()[-3:])}")


def finds_fault(proof: Proof, name: str) -> bool:
    """Whether property `name`, alone, fails within the fault's depth from reset once the fault is in."""
    fault = next(p.fault for p in proof.properties if p.name == name)
    with broken(fault):
        bench = proof.bench(name)
        text = bench.rtlil()
    with tempfile.TemporaryDirectory(prefix="tilewright-formal-") as folder:
        return not Model(text, Path(folder)).bounded(fault.depth)[0]


def table() -> str:
    """The proofs as a Markdown table."""
    lines = ["| proof | property | statement | bound |", "|---|---|---|---|"]
    for proof in PROOFS:
        lines += [f"| `{proof.name}` | `{p.name}` | {p.statement} | {proof.bound} |" for p in proof.properties]
    return "\n".join(lines) + "\n"


def timed(proof: Proof) -> float:
    """Proves and returns seconds."""
    start = time.monotonic()
    prove(proof)
    return time.monotonic() - start
