"""Benches of the memories of boards: block RAM as an AXI4 slave, and what cuts bursts for an SDRAM."""

from __future__ import annotations

from amaranth.hdl import Mux, Signal

from tilewright.fpga.memory import OnChipMemory
from tilewright.fpga.sdram.axi import Splitter
from tilewright.fpga.sdram.controller import PAIR_BYTES, SEGMENT_PAIRS
from tilewright.hw.parts.queue import Queue
from verification.formal.bench import Bench, implies, opened
from verification.formal.bus.axi_benches import keeps, legal_burst
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: Bytes of the memory.
_SIZE = 64
#: Bursts in flight that the bench keeps in mind.
_BURSTS = 8


def block_ram(only: str | None) -> Bench:
    """Block RAM with a master that keeps what it offers, and a serial bridge that asks for anything."""
    b = Bench(only)
    memory = b.part("memory", OnChipMemory(SMALL, _SIZE), bus_reset=0)
    axi = memory.axi
    for name, fields in (("ar", ("addr", "len", "id")), ("aw", ("addr", "len", "id")), ("w", ("data", "strb", "last"))):
        channel = getattr(axi, name)
        keeps(b, name, channel, *fields)
        if name != "w":
            b.assume(implies(channel.valid, legal_burst(SMALL, channel.addr, channel.len + 1)))
    # Reads: lengths and names of those that are not answered whole.
    b.m.submodules.reads = reads = Queue(9, _BURSTS)
    beat_taken = axi.r.valid & axi.r.ready
    beats = Signal(8, name="beats")
    b.m.d.comb += [
        reads.i_valid.eq(axi.ar.valid & axi.ar.ready),
        reads.i_payload.eq(axi.ar.len | (axi.ar.id << 8)),
        reads.o_ready.eq(beat_taken & axi.r.last),
    ]
    b.assume(implies(axi.ar.valid, reads.i_ready))
    b.m.d.sync += beats.eq(Mux(beat_taken, Mux(axi.r.last, 0, beats + 1), beats))
    waits = b.past(axi.r.valid & ~axi.r.ready, "r_waits")
    for field in ("data", "resp", "last", "id"):
        port = getattr(axi.r, field)
        b.check(
            "r_stable",
            implies(waits, axi.r.valid & (port == b.past(port, f"r_{field}"))),
            "Block RAM, R: valid stays until ready, data, response, RLAST and ID do not change",
            Cut("memory.axi__r__valid", 14),
        )
    b.check(
        "r_beats",
        implies(axi.r.valid, reads.o_valid & (axi.r.last == (beats == reads.o_payload[:8]))),
        "Block RAM, R: as many beats as ARLEN says, in the order of the bursts, RLAST with the last",
        Cut("memory.axi__r__last", 14),
    )
    b.check("r_beats", implies(axi.r.valid, axi.r.id == reads.o_payload[8]))
    # Writes: bursts whose address, and whose last beat, came, less those answered.
    addressed, finished = Signal(5, name="addressed"), Signal(5, name="finished")
    answered = axi.b.valid & axi.b.ready
    b.m.d.sync += [
        addressed.eq(addressed + (axi.aw.valid & axi.aw.ready) - answered),
        finished.eq(finished + (axi.w.valid & axi.w.ready & axi.w.last) - answered),
    ]
    b.assume((addressed < _BURSTS) & (finished < _BURSTS))
    waits = b.past(axi.b.valid & ~axi.b.ready, "b_waits")
    for field in ("resp", "id"):
        port = getattr(axi.b, field)
        b.check(
            "b_stable",
            implies(waits, axi.b.valid & (port == b.past(port, f"b_{field}"))),
            "Block RAM, B: valid stays until ready, response and ID do not change",
            Cut("memory.axi__b__resp", 10),
        )
    b.check(
        "b_once",
        implies(axi.b.valid, (addressed != 0) & (finished != 0)),
        "Block RAM, B: one response for a burst, behind its address and its last beat",
        Cut("memory.axi__b__valid", 10),
    )
    return b


#: Beats of a segment behind a bus of 32 bits.
_SEGMENT = SEGMENT_PAIRS * PAIR_BYTES // SMALL.bus_bytes
_ADDRESS_BITS = 22


def segments(only: str | None) -> Bench:
    """Any bursts, as segments that are taken whenever."""
    b = Bench(only)
    s = Splitter(_ADDRESS_BITS, _SEGMENT)
    opened(s)
    b.part("splitter", s)
    b.assume(implies(s.i_valid, s.i_address + s.i_length < 1 << _ADDRESS_BITS))
    taken, sent = s.i_valid & s.i_ready, s.o_valid & s.o_ready
    count = s.o_count + 1
    rest, following = Signal(9, name="rest"), Signal(_ADDRESS_BITS, name="following")
    b.m.d.sync += [
        rest.eq(Mux(taken, s.i_length + 1, Mux(sent, rest - count, rest))),
        following.eq(Mux(taken, s.i_address, Mux(sent, following + count, following))),
    ]
    waits = b.past(s.o_valid & ~s.o_ready, "waits")
    for name in ("address", "count", "last"):
        port = getattr(s, f"o_{name}")
        b.check(
            "stable",
            implies(waits, s.o_valid & (port == b.past(port, name))),
            "SDRAM, `Splitter`: a segment stays until it is taken",
            Cut("splitter.o_valid"),
        )
    b.check(
        "whole",
        implies(s.o_valid, (s.o_address == following) & (count <= rest) & (s.o_last == (count == rest))),
        "SDRAM, `Splitter`: the segments of a burst follow each other from its first beat to its last, which is marked",
        Cut("splitter.ends"),
    )
    b.check("whole", implies(taken, rest == 0))
    low = s.o_address[: (_SEGMENT - 1).bit_length()]
    b.check(
        "legal",
        implies(s.o_valid, low + count <= _SEGMENT),
        "SDRAM, `Splitter`: no segment crosses a multiple of a segment",
        Cut("splitter.ends"),
    )
    shown = Mux(s.o_valid, count, 0)
    b.invariant(implies(rest != 0, following + rest <= 1 << _ADDRESS_BITS) & ((rest != 0) == (s.active | s.o_valid)))
    b.invariant(implies(s.active, (s.address == following + shown) & (s.left + 1 + shown == rest)))
    b.invariant(implies(~s.active & s.o_valid, count == rest))
    return b
