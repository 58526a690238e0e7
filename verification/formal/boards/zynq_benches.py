"""Benches of the adapters of Zynq: bursts of AXI4 as bursts of AXI3, and those of AXI3 as accesses to registers."""

from __future__ import annotations

from types import SimpleNamespace

from amaranth.hdl import Mux, Signal, Value

from tilewright.fpga.zynq.axi3 import FIXED, INCR, MAX_BEATS, OKAY, BurstSplitter, RegisterBridge
from tilewright.hw.parts.queue import Queue
from verification.formal.bench import Bench, contents, implies, opened
from verification.formal.bus.axi_benches import keeps, legal_burst
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: Bursts of up to four pieces, two of each kind in flight.
SPLIT = SMALL.with_(name="formal_split", axi_data_bits=64, burst_beats=64)
#: Window of `RegisterBridge`.
_BASE, _SIZE = 0x4000_0000, 0x1000
#: Fields of an AXI3 address.
_ADDRESS = ("addr", "len", "size", "burst", "id")


def _splitter(b: Bench) -> BurstSplitter:
    s = BurstSplitter(SPLIT)
    opened(s)
    for ends in s.ends.values():
        opened(ends)
    b.part("splitter", s)
    for name in ("ar", "aw"):
        channel = getattr(s.axi, name)
        b.assume(implies(channel.valid, legal_burst(SPLIT, channel.addr, channel.len + 1)))
        keeps(b, name, channel, "addr", "len")  # which `axi_read` and `axi_write` prove
    return s


def split(only: str | None) -> Bench:
    """Addresses of both directions, and what a memory answers that answers pieces in their order."""
    b = Bench(only)
    s = _splitter(b)
    flying: dict[str, Queue] = {}
    for name in ("ar", "aw"):
        npu = getattr(s.axi, name)
        valid, ready, addr, length = (getattr(s, f"hp_{name}{field}") for field in ("valid", "ready", "addr", "len"))
        waits = b.past(valid & ~ready, f"hp_{name}_waits")
        b.check(
            "stable",
            implies(waits, valid & (addr == b.past(addr, f"hp_{name}_addr"))),
            "`BurstSplitter`, AR and AW: valid stays until ready, address and length do not change",
            Cut("splitter.ar_sent"),
        )
        b.check("stable", implies(waits, length == b.past(length, f"hp_{name}_len")))
        b.check(
            "legal",
            implies(valid, legal_burst(SPLIT, addr, length + 1) & (length < MAX_BEATS)),
            "`BurstSplitter`: pieces are INCR, of 1 to 16 whole beats, and do not cross 4 KiB",
            Cut("splitter.ar_end"),
        )
        b.check("legal", (getattr(s, f"hp_{name}size") == 3) & (getattr(s, f"hp_{name}burst") == INCR))
        # What the NPU has asked for and no piece has yet.
        rest, following = Signal(9, name=f"{name}_rest"), Signal(32, name=f"{name}_following")
        sent, taken = valid & ready, npu.valid & npu.ready
        piece = length + 1
        after = Mux(sent, rest - piece, rest)
        b.m.d.sync += [
            rest.eq(Mux(taken, npu.len + 1, after)),
            following.eq(Mux(taken, npu.addr, Mux(sent, following + piece * 8, following))),
        ]
        b.check(
            "whole",
            implies(valid, (addr == following) & (piece <= rest)),
            "`BurstSplitter`: the pieces of a burst follow each other from its first byte to its last",
            Cut("splitter.aw_sent"),
        )
        b.check("whole", implies(taken, after == 0))
        left = s.left[name]
        within = (following[:12] + rest * 8 <= 4096) & (following[:3] == 0) & (rest <= SPLIT.burst_beats)
        b.invariant((left == rest) & implies(rest != 0, (addr == following) & within))
        # Of the pieces in flight, whether they end their burst.
        mine = Queue(1, s.ends[name].depth)
        opened(mine)
        b.m.submodules[f"{name}_pieces"] = mine
        b.m.d.comb += [mine.i_valid.eq(sent), mine.i_payload.eq(piece == rest)]
        flying[name] = mine
        pairs = zip(contents(b, s.ends[name], f"{name}_ends"), contents(b, mine, f"{name}_mine"), strict=True)
        for (there, entry), (expected_there, expected) in pairs:
            b.invariant((there == expected_there) & implies(there, entry == expected))
    reads, writes, r, answer = flying["ar"], flying["aw"], s.axi.r, s.axi.b
    b.assume(implies(s.hp_rvalid, reads.o_valid) & implies(s.hp_bvalid, writes.o_valid))
    b.m.d.comb += reads.o_ready.eq(s.hp_rvalid & s.hp_rready & s.hp_rlast)
    b.check(
        "r_last",
        (r.valid == s.hp_rvalid) & (r.ready == s.hp_rready) & implies(r.valid, r.data == s.hp_rdata),
        "`BurstSplitter`, R: all beats pass, RLAST is with the last beat of a burst and no other",
        Cut("splitter.ar_end"),
    )
    b.check("r_last", implies(r.valid, r.last == (s.hp_rlast & reads.o_payload)))
    taken = s.hp_bvalid & s.hp_bready
    b.m.d.comb += writes.o_ready.eq(taken)
    b.check(
        "b_once",
        answer.valid == (s.hp_bvalid & writes.o_payload),
        "`BurstSplitter`, B: one response for a burst, with that of its last piece",
        Cut("splitter.aw_end"),
    )
    b.check("b_once", implies(answer.valid, (answer.valid & answer.ready) == taken))
    bad = Signal(name="bad")  # a piece of this burst
    b.m.d.sync += bad.eq(Mux(taken, ~writes.o_payload & (bad | (s.hp_bresp != OKAY)), bad))
    b.check(
        "b_error",
        implies(answer.valid, (answer.resp != OKAY) == (bad | (s.hp_bresp != OKAY))),
        "`BurstSplitter`, B: an error exactly if a piece of the burst had one",
        Cut("splitter.axi__b__resp"),
    )
    b.invariant(bad == (s.worst != OKAY))
    return b


def split_beats(only: str | None) -> Bench:
    """Write beats: the NPU's WLAST is with the last beat of its burst, and its bursts have at most `burst_beats`."""
    b = Bench(only)
    s = _splitter(b)
    w = s.axi.w
    waits = b.past(w.valid & ~w.ready, "w_waits")
    held = {n: getattr(w, n) == b.past(getattr(w, n), f"w_{n}") for n in ("data", "strb", "last")}
    b.assume(implies(waits, w.valid & held["data"] & held["strb"] & held["last"]))
    taken, hp_taken = w.valid & w.ready, s.hp_wvalid & s.hp_wready
    beats = Signal(range(SPLIT.burst_beats + 1), name="beats")  # of this burst
    b.m.d.sync += beats.eq(Mux(taken, Mux(w.last, 0, beats + 1), beats))
    b.assume(implies(w.valid & (beats == SPLIT.burst_beats - 1), w.last))
    b.check(
        "w_stable",
        (taken == hp_taken) & implies(s.hp_wvalid, (s.hp_wdata == w.data) & (s.hp_wstrb == w.strb)),
        "`BurstSplitter`, W: beats pass as they are when they are taken; valid stays until ready, data "
        "and WLAST do not change",
        Cut("splitter.hp_wlast"),
    )
    piece_ends = w.last | (beats[: (MAX_BEATS - 1).bit_length()] == MAX_BEATS - 1)
    b.check(
        "wlast",
        implies(s.hp_wvalid, s.hp_wlast == piece_ends),
        "`BurstSplitter`, W: WLAST is with every 16th beat of a burst and its last",
        Cut("splitter.beat"),
    )
    hp_waits = b.past(s.hp_wvalid & ~s.hp_wready, "hp_w_waits")
    b.check("w_stable", implies(hp_waits, s.hp_wvalid & (s.hp_wlast == b.past(s.hp_wlast, "hp_wlast"))))
    b.check("w_stable", implies(hp_waits, s.hp_wdata == b.past(s.hp_wdata, "hp_wdata")))
    b.invariant(s.beat == beats[: (MAX_BEATS - 1).bit_length()])
    b.invariant(beats < SPLIT.burst_beats)
    b.invariant(implies(hp_waits, waits))
    return b


def _bridge(b: Bench) -> RegisterBridge:
    bridge = RegisterBridge(_BASE, _SIZE)
    opened(bridge)
    b.part("bridge", bridge)
    for name, fields in (("ar", _ADDRESS), ("aw", _ADDRESS), ("w", ("data", "strb"))):
        ports = {field: getattr(bridge, f"gp_{name}{field}") for field in (*fields, "valid", "ready")}
        keeps(b, name, SimpleNamespace(**ports), *fields)
    return bridge


def _inside(address: Value) -> Value:
    return (address >= _BASE) & (address < _BASE + _SIZE)


def bridge_reads(only: str | None) -> Bench:
    """Reads: a burst on GP, an access a beat on AXI4-Lite, whose slave answers what it was asked."""
    b = Bench(only)
    d = _bridge(b)
    axil = d.axil
    taken, given = d.gp_arvalid & d.gp_arready, d.gp_rvalid & d.gp_rready
    asked, answered = axil.ar.valid & axil.ar.ready, axil.r.valid & axil.r.ready
    waiting = Signal(name="waiting")  # for AXI4-Lite
    b.m.d.sync += waiting.eq((waiting | asked) & ~answered)
    b.assume(implies(axil.r.valid, waiting))
    keeps(b, "axil_r", axil.r, "data", "resp")
    # What was asked for.
    left, name = Signal(5, name="beats"), Signal(12, name="id")
    refused = Signal(name="refused")
    wrong = ~_inside(d.gp_araddr) | ((d.gp_arburst != INCR) & (d.gp_arburst != FIXED))
    b.m.d.sync += left.eq(Mux(taken, d.gp_arlen + 1, left - given))
    with b.m.If(taken):
        b.m.d.sync += [name.eq(d.gp_arid), refused.eq(wrong)]
    gp_waits = b.past(d.gp_rvalid & ~d.gp_rready, "gp_r_waits")
    for field in ("data", "resp", "last", "id"):
        port = getattr(d, f"gp_r{field}")
        kept = (port == b.past(port, f"gp_r{field}")) | (refused if field == "data" else 0)
        b.check(
            "stable",
            implies(gp_waits, d.gp_rvalid & kept),
            "`RegisterBridge`, R: valid stays until ready, data, response, RLAST and ID do not change",
            Cut("bridge.gp_rvalid"),
        )
    b.check(
        "beats",
        implies(d.gp_rvalid, (left != 0) & (d.gp_rlast == (left == 1)) & (d.gp_rid == name)),
        "`RegisterBridge`, R: as many beats as ARLEN says, RLAST with the last, with the ID of the burst",
        Cut("bridge.gp_rlast"),
    )
    b.check("beats", implies(taken, left == 0))
    b.check(
        "refused",
        implies(refused & d.gp_rvalid, d.gp_rresp != OKAY) & implies(axil.ar.valid, ~refused),
        "`RegisterBridge`: bursts outside the window and wrapping ones read nothing and answer with an error",
        Cut("bridge.ar_refused"),
    )
    ar_waits = b.past(axil.ar.valid & ~axil.ar.ready, "axil_ar_waits")
    b.check(
        "access",
        implies(ar_waits, axil.ar.valid & (axil.ar.addr == b.past(axil.ar.addr, "axil_araddr"))),
        "`RegisterBridge`, AXI4-Lite: AR stays until ready; one read at a time, and no beat before its answer",
        Cut("bridge.axil__ar__valid"),
    )
    b.check("access", implies(axil.ar.valid, ~waiting) & implies(d.gp_rvalid & ~refused, axil.r.valid))
    active, rest, response = d.bursts["ar"]
    b.invariant((active == (left != 0)) & implies(active, (left == rest + 1) & (d.gp_rid == name)))
    b.invariant(implies(active, refused == (response != OKAY)) & (waiting == d.asked))
    b.invariant(implies(d.asked, active & ~refused))
    return b


def bridge_writes(only: str | None) -> Bench:
    """Writes: a burst on GP, an access a beat with all strobes on AXI4-Lite, whose slave answers what it was given."""
    b = Bench(only)
    d = _bridge(b)
    axil = d.axil
    taken, beat = d.gp_awvalid & d.gp_awready, d.gp_wvalid & d.gp_wready
    response_taken = d.gp_bvalid & d.gp_bready
    sent, word, answered = (x.valid & x.ready for x in (axil.aw, axil.w, axil.b))
    address_there, word_there = Signal(name="address_there"), Signal(name="word_there")
    b.m.d.sync += [address_there.eq((address_there | sent) & ~answered), word_there.eq((word_there | word) & ~answered)]
    b.assume(implies(axil.b.valid, address_there & word_there))
    keeps(b, "axil_b", axil.b, "resp")
    left, name, refused, open_ = (Signal(n, name=s) for n, s in ((5, "beats"), (12, "id"), (1, "refused"), (1, "open")))
    wrong = ~_inside(d.gp_awaddr) | ((d.gp_awburst != INCR) & (d.gp_awburst != FIXED)) | (d.gp_awsize != 2)
    b.m.d.sync += [left.eq(Mux(taken, d.gp_awlen + 1, left - beat)), open_.eq((open_ | taken) & ~response_taken)]
    with b.m.If(taken):
        b.m.d.sync += [name.eq(d.gp_awid), refused.eq(wrong)]
    b.check(
        "b_once",
        implies(d.gp_bvalid, open_ & (left == 0) & (d.gp_bid == name)) & implies(taken, ~open_),
        "`RegisterBridge`, B: one response for a burst, behind its last beat, with its ID",
        Cut("bridge.gp_bvalid"),
    )
    b.check("b_once", implies(beat, left != 0))
    gp_waits = b.past(d.gp_bvalid & ~d.gp_bready, "gp_b_waits")
    b.check(
        "b_stable",
        implies(gp_waits, d.gp_bvalid & (d.gp_bresp == b.past(d.gp_bresp, "gp_bresp"))),
        "`RegisterBridge`, B: valid stays until ready, the response does not change",
        Cut("bridge.gp_bresp"),
    )
    # An access is owed from the beat with all its strobes on, in a burst that is not refused.
    owed, data = Signal(name="owed"), Signal(32, name="data")
    b.m.d.sync += owed.eq((owed & ~answered) | (beat & d.gp_wstrb.all() & ~refused))
    with b.m.If(beat):
        b.m.d.sync += data.eq(d.gp_wdata)
    b.check(
        "access",
        implies(axil.aw.valid | axil.w.valid, owed) & implies(axil.w.valid, axil.w.data == data),
        "`RegisterBridge`, AXI4-Lite: AW and W stay until ready; one write for a beat with all its "
        "strobes, done before B",
        Cut("bridge.axil__w__data"),
    )
    b.check("access", implies(axil.w.valid, axil.w.strb == 0b1111) & implies(d.gp_bvalid, ~owed))
    for channel, field in ((axil.aw, "addr"), (axil.w, "data")):
        waits = b.past(channel.valid & ~channel.ready, f"axil_{field}_waits")
        same = getattr(channel, field) == b.past(getattr(channel, field), f"axil_{field}")
        b.check("access", implies(waits, channel.valid & same))
    b.check(
        "refused",
        implies(refused & d.gp_bvalid, d.gp_bresp != OKAY),
        "`RegisterBridge`: bursts outside the window, wrapping and narrow ones answer with an error",
        Cut("bridge.aw_refused"),
    )
    active, rest, response = d.bursts["aw"]
    held, address_sent, word_sent, answering = d.beat
    pending = left + held
    b.invariant((active == open_) & implies(active, (d.gp_bid == name) & (refused == (response != OKAY))))
    b.invariant(implies(~active, (left == 0) & ~held & ~answering) & implies(active & ~answering, pending == rest + 1))
    b.invariant(implies(answering, (left == 0) & ~held) & implies(answering & refused, d.gp_bresp != OKAY))
    b.invariant((held == owed) & (address_sent == address_there) & (word_sent == word_there))
    b.invariant(implies(held, ~refused & (axil.w.data == data)) & implies(address_sent | word_sent, held))
    return b
