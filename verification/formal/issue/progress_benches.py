"""Benches of the engines that use the bus, with a memory: that they go on."""

from __future__ import annotations

from functools import reduce
from typing import Any

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib.wiring import connect

from tilewright.hw.interfaces import LENGTH_BITS
from tilewright.hw.issue.fetch import Fetch
from tilewright.hw.memory.axi_read import AxiRead
from tilewright.hw.parts.queue import Queue
from tilewright.hw.table import is_instruction
from tilewright.hw.transfer.load import Load
from tilewright.hw.transfer.store import Store
from verification.formal.bench import Bench, implies
from verification.formal.bus.axi_benches import instructions
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: Longest wait of a beat for RREADY in `load_accepts`, and so many cycles without anything done are too many.
READY_WITHIN = 6
FETCH_WITHIN, LOAD_WITHIN, STORE_WITHIN = 5, 5, 6

_CONFIG = SMALL.with_(burst_beats=2)
_REGION = {"base": 0, "size": 1 << 16, "allowed": 1}
_REGION_PORT = {f"region__{name}": value for name, value in _REGION.items()}


class _Loading:
    """LOAD on the read port of a memory that answers as asked. An error halts in the next cycle.

    Attributes:
        load, read: both.  halt: there was an error.
        late: the memory has not given a beat that it was asked for.
    """

    def __init__(self, b: Bench) -> None:
        self.load, self.read = load, read = Load(_CONFIG), AxiRead(_CONFIG)
        self.halt = halt = Signal(name="halt")
        connected = ("ready", "beat", "data", "bad", "beat_address", "idle")
        b.part("load", load, **_REGION_PORT, control__halt=halt, **{f"read__{name}": None for name in connected})
        driven = ("valid", "address", "beats", "beat_ready")
        b.part("read", read, fetch__valid=0, r__data=0, r__resp=0, r__last=None, halt=halt,
               **{f"load__{name}": None for name in driven})  # fmt: skip
        connect(b.m, load.read, read.load)
        instructions(b, load, "LOAD")
        with b.m.If(load.operand_fault.error | load.window_fault.error | load.range_fault.error):
            b.m.d.sync += halt.eq(1)
        # The memory: lengths of the bursts asked for, beats given of the oldest.
        b.m.submodules.asked = asked = Queue(8, _CONFIG.read_outstanding)
        given = Signal(8, name="given")
        taken = read.r.valid & read.r.ready
        b.m.d.comb += [
            asked.i_valid.eq(read.ar.valid & read.ar.ready),
            asked.i_payload.eq(read.ar.len),
            asked.o_ready.eq(taken & read.r.last),
            read.r.last.eq(given == asked.o_payload),
        ]
        b.m.d.sync += given.eq(Mux(taken, Mux(read.r.last, 0, given + 1), given))
        b.assume(implies(read.r.valid, asked.o_valid))
        self.late = asked.o_valid & ~read.r.valid


def load_accepts(only: str | None) -> Bench:
    """Boxes without padding; VECTOR holds a bank for one cycle at most."""
    b = Bench(only)
    part = _Loading(b)
    load, r = part.load, part.read.r
    refused = Signal(name="refused")
    b.assume(~(load.control.configure.any() & is_instruction(load.control.word, "LOAD_PAD")))
    b.m.d.sync += refused.eq(load.write.valid & ~load.write.grant)
    b.assume(implies(refused, load.write.grant))
    waited = Signal(range(READY_WITHIN + 2), name="waited")
    b.m.d.sync += waited.eq(Mux(r.valid & ~r.ready, waited + 1, 0))
    b.check(
        "accepted",
        waited < READY_WITHIN,
        f"R: LOAD takes every beat within {READY_WITHIN - 1} cycles (boxes without padding, VECTOR holds a bank for "
        "one cycle)",
        Cut("load.data.beat_ready", 16),
    )
    return b


def _goes_on(
    b: Bench,
    engine: str,
    busy: Value,
    done: list[Value],
    others: list[Value],
    within: int,
    *,
    also: str,
    what: str,
    fault: Cut,
) -> None:
    """Checks that an engine that is busy does something after at most `within` cycles in which nobody else holds it up.

    Args:
        done: whether something is done, of each kind.
        others: whether somebody else holds it up, of each kind.
        also: who else may, besides the memory, for the statement.
        what: it does, besides addresses and beats, for the statement.
        fault: of the property.
    """
    something, held = (reduce(lambda x, y: x | y, conditions) for conditions in (done, others))
    still = Signal(range(within + 2), name="still")
    with b.m.If(something | ~busy):
        b.m.d.sync += still.eq(0)
    with b.m.Elif(~held):
        b.m.d.sync += still.eq(still + 1)
    statement = (
        f"{engine}: in no {within} cycles of its work in which neither the memory nor {also} hold it up does it do "
        f"nothing: no address, no beat, {what}"
    )
    b.check("goes_on", still < within, statement, fault)


def _waits(channel: Any) -> Value:
    return channel.valid & ~channel.ready


def load_goes_on(only: str | None) -> Bench:
    """Any boxes; memory and scratchpads are as slow as they like."""
    b = Bench(only)
    part = _Loading(b)
    load, ar, r = part.load, part.read.ar, part.read.r
    done = [ar.valid & ar.ready, r.valid & r.ready, load.write.valid & load.write.grant, load.retire.give]
    others = [part.halt, part.late, _waits(ar), load.write.valid & ~load.write.grant]
    _goes_on(
        b, "LOAD", load.activity.running, done, others, LOAD_WITHIN,
        also="scratchpads", what="no write, no end of an instruction", fault=Cut("load.data.beat_ready", 16),
    )  # fmt: skip
    return b


def store_goes_on(only: str | None) -> Bench:
    """Any boxes; memory and ACT are as slow as they like."""
    b = Bench(only)
    store, halt = Store(_CONFIG), Signal(name="halt")
    b.part("store", store, **_REGION_PORT, control__halt=halt, b__resp=0)
    instructions(b, store, "STORE")
    act, aw, w, response = store.act, store.aw, store.w, store.b
    with b.m.If(store.window_fault.error | store.range_fault.error):
        b.m.d.sync += halt.eq(1)
    b.assume(act.grant <= Mux(act.valid, act.more + 1, 0))
    # The memory: a response for each burst whose address and last beat it has.
    addresses, data = Signal(3, name="addresses"), Signal(3, name="data")
    answers = response.valid & response.ready
    b.m.d.sync += addresses.eq(addresses + (aw.valid & aw.ready) - answers)
    b.m.d.sync += data.eq(data + (w.valid & w.ready & w.last) - answers)
    due = (addresses != 0) & (data != 0)
    b.assume(implies(response.valid, due))
    done = [act.grant != 0, aw.valid & aw.ready, w.valid & w.ready, answers, store.retire.give]
    others = [halt, due & ~response.valid, _waits(aw), _waits(w), act.valid & (act.grant == 0)]
    _goes_on(
        b, "STORE", store.activity.running, done, others, STORE_WITHIN,
        also="ACT", what="no row of ACT, no end of an instruction", fault=Cut("store.write.w__valid", 16),
    )  # fmt: skip
    return b


def fetch_goes_on(only: str | None) -> Bench:
    """Any program, from START to END or an error; memory and queues are as slow as they like, no engine moves."""
    b = Bench(only)
    first, halt = Signal(init=1, name="first"), Signal(name="halt")
    b.m.d.sync += first.eq(0)
    fetch = Fetch(_CONFIG)
    program = {"offset": b.constant(_CONFIG.offset_bits, "offset"), "length": b.constant(LENGTH_BITS, "length")}
    b.part("fetch", fetch, start=first, quiet=1, halt=halt, **_REGION, **program)
    with b.m.If(fetch.fault.error):
        b.m.d.sync += halt.eq(1)
    read = fetch.read
    asked = Signal(16, name="asked")
    b.m.d.sync += asked.eq(asked + Mux(read.valid & read.ready, read.beats, 0) - read.beat)
    b.assume(implies(read.beat, asked != 0))
    busy = ~(fetch.ended | halt | fetch.fault.error)
    done = [first, read.valid & read.ready, read.beat, fetch.step]
    _goes_on(
        b, "FETCH", busy, done, [(asked != 0) & ~read.beat, _waits(read), _waits(fetch)], FETCH_WITHIN,
        also="queues", what="no instruction, END or error", fault=Cut("fetch.enough", 12),
    )  # fmt: skip
    return b
