"""Benches of the AXI4 master: bursts, their windows, the way out of a reset. What benches at a bus need."""

from __future__ import annotations

from functools import reduce
from typing import Any

from amaranth.hdl import Array, C, Cat, Mux, Signal, Value

from tilewright.hw.interfaces import LENGTH_BITS, SEMAPHORE_BITS
from tilewright.hw.issue.decoder import Decoder
from tilewright.hw.issue.fetch import Fetch
from tilewright.hw.memory.axi_read import AxiRead
from tilewright.hw.memory.axi_write import AxiWrite
from tilewright.hw.npu import Npu
from tilewright.hw.parts.probes import probes
from tilewright.hw.table import field, instructions_of, is_instruction
from tilewright.hw.transfer.bursts import AXI_BOUNDARY, BurstWalker, run_bits
from tilewright.hw.transfer.load import Load
from tilewright.hw.transfer.store import Store
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import REGIONS, Engine
from tilewright.isa.timing import fetch_burst_bytes
from verification.formal.bench import Bench, contents, implies, opened
from verification.formal.engine import Cut
from verification.formal.machines import SMALL


def region(b: Bench, config: NpuConfig, name: str) -> tuple[Signal, Signal, Value]:
    """(base, size, end) of a region the host could set: it starts at a beat and ends within the address space."""
    base = b.constant(config.axi_address_bits, f"{name}_base")
    size = b.constant(config.offset_bits, f"{name}_size")
    end = base + size
    b.assume((base & (config.bus_bytes - 1)) == 0)
    b.assume(end <= (1 << config.axi_address_bits))
    return base, size, end


def within(config: NpuConfig, address: Value, beats: Value, base: Value, end: Value) -> Value:
    """Returns whether every beat of the burst holds a byte of the region, and none comes before it."""
    return (address >= base) & ((address + (beats - 1) * config.bus_bytes)[: config.axi_address_bits + 2] < end)


def keeps(b: Bench, name: str, channel: Any, *fields: str) -> None:
    """Assumes that whoever offers something on a channel keeps it, with these fields, until it is taken."""
    waits = b.past(channel.valid & ~channel.ready, f"{name}_waits")
    b.assume(implies(waits, channel.valid))
    for kept in fields:
        port = getattr(channel, kept)
        b.assume(implies(waits, port == b.past(port, f"{name}_{kept}")))


def legal_burst(config: NpuConfig, address: Value, beats: Value) -> Value:
    """Returns whether a burst has 1 to `burst_beats` whole beats, within 4 KiB."""
    start = address & (AXI_BOUNDARY - 1)
    return (
        (beats >= 1)
        & (beats <= config.burst_beats)
        & ((address & (config.bus_bytes - 1)) == 0)
        & (start + beats * config.bus_bytes <= AXI_BOUNDARY)
    )


def spans_within(b: Bench, config: NpuConfig, walker: BurstWalker, base: Any, end: Any, allowed: Any) -> None:
    """States that the beats a stage still has to ask for lie in the region of its run: makes the window inductive.
    `base`, `end` and `allowed` take the tag of the stage."""
    inner = probes(walker)
    box, rest = inner.box, inner.rest
    b.invariant(implies(box.valid & ~box.null, (box.bytes != 0) & (box.end == box.now + box.bytes)))
    for stage, inside in ((inner.run, inner.run.inside), (rest, C(1))):
        busy, first, beats, tag = stage.valid & ~stage.null & inside, stage.address, stage.beats, stage.tag
        b.invariant(implies(busy, allowed(tag) & (beats >= 1) & (first * config.bus_bytes >= base(tag))))
        b.invariant(implies(busy, (first + beats) * config.bus_bytes < end(tag) + config.bus_bytes))
    # The burst of the third stage, once it is cut, and those that wait.
    valid, null, turn, final, beats = rest.valid, rest.null, rest.turn, rest.final, rest.beats
    reach = config.burst_beats - (rest.address & (config.burst_beats - 1))
    cut = (final == (beats <= reach)) & (rest.burst == Mux(beats <= reach, beats, reach))
    b.invariant(implies(valid & ~null, turn | cut) & implies(turn, valid & ~null) & implies(valid & null, final))
    for there, entry in contents(b, inner.out, "out"):
        tag_at = walker.beat_bits + 2
        beats, null, tag = entry[: walker.beat_bits], entry[tag_at - 1], entry[tag_at : tag_at + walker.tag_bits]
        address = entry[tag_at + walker.tag_bits :] * config.bus_bytes
        inside = allowed(tag) & within(config, address, beats, base(tag), end(tag))
        b.invariant(implies(there & ~null, inside & legal_burst(config, address, beats)))


def walker(only: str | None) -> Bench:
    """Arbitrary boxes, one region."""
    b = Bench(only)
    base, size, end = region(b, SMALL, "region")
    allowed = b.constant(1, "allowed")
    w = BurstWalker(SMALL, 1, run_bits(SMALL.tile_bytes))
    opened(w)
    opened(probes(w).out)
    b.part("walker", w, base=base, size=size, allowed=allowed)
    b.assume(implies(w.start, w.ready & (w.null | (w.bytes != 0)) & (w.count0 != 0) & (w.count1 != 0)))
    burst = w.o_valid & ~w.o_null
    b.check(
        "legal",
        implies(burst, legal_burst(SMALL, w.o_address, w.o_beats)),
        "bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
        Cut("walker.reach", 7),
    )
    b.check(
        "window",
        implies(burst, allowed & within(SMALL, w.o_address, w.o_beats, base, end)),
        "every burst of an arbitrary box lies in its region, or is not asked for",
        Cut("walker.inside2", 7),
    )
    spans_within(b, SMALL, w, lambda tag: base, lambda tag: end, lambda tag: allowed)
    return b


def _regions(b: Bench, part: Any) -> tuple[dict[str, Any], list[Any], list[Any], list[Any]]:
    """Returns the inputs of a part that looks up a region; bases, ends and permissions by number."""
    bases, sizes, ends, allowed = [], [], [], []
    for r in range(REGIONS):
        base, size, end = region(b, SMALL, f"region{r}")
        bases.append(base)
        sizes.append(size)
        ends.append(end)
        allowed.append(b.constant(1, f"region{r}_allowed"))
    number = part.region.number
    looked_up = {"base": Array(bases)[number], "size": Array(sizes)[number], "allowed": Array(allowed)[number]}
    return {f"region__{name}": value for name, value in looked_up.items()}, bases, ends, allowed


def instructions(b: Bench, part: Any, engine: str, c: NpuConfig = SMALL) -> None:
    """Assumes what front end and decoder guarantee: legal instructions of this engine, started when it is ready."""
    control = part.control
    b.m.submodules.decoder = decoder = Decoder(c)
    b.m.d.comb += decoder.word.eq(control.word)
    mine = is_instruction(control.word, *(i.name for i in instructions_of(Engine[engine], configures=False)))
    b.assume(implies(control.configure.any() | control.start, decoder.legal & decoder.operands_ok))
    b.assume(decoder.engine == Engine[engine])
    b.assume(
        implies(control.configure.any(), ~mine & ~control.start & ~control.halt)
        & implies(control.start, mine & ~control.halt)
    )
    b.assume(implies(control.start, control.ready))
    for bit, instruction in zip(control.configure, instructions_of(Engine[engine], configures=True)):
        b.assume(implies(bit, is_instruction(control.word, instruction.name)))
    # It was at the head of the queue in the cycle before.
    there = (control.word == b.past(control.word, "word")) & (control.pc == b.past(control.pc, "pc"))
    b.assume(implies(control.start, there & ~b.past(control.configure.any(), "configure")))


def _window(b: Bench, part: Any, engine: str, at: int, bases: list, ends: list, allowed: list) -> None:
    """Bursts of an instruction lie in the region it names: the bench has the region's number in its `pc`."""
    bits = (REGIONS - 1).bit_length()
    w: BurstWalker = part.walker
    opened(w)
    opened(probes(w).out)
    b.assume(part.control.pc[:bits] == field(part.control.word, engine, "region"))

    def of(values: list) -> Any:
        return lambda tag: Array(values)[tag[at : at + bits]]

    number = w.o_tag
    burst = w.o_valid & ~w.o_null
    inside = within(SMALL, w.o_address, w.o_beats, of(bases)(number), of(ends)(number))
    b.check("window", implies(burst, of(allowed)(number) & inside))
    b.check(
        "legal",
        implies(burst, legal_burst(SMALL, w.o_address, w.o_beats)),
        f"{engine}: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
        Cut(f"{engine.lower()}.walker.reach", 7),
    )
    spans_within(b, SMALL, w, of(bases), of(ends), of(allowed))
    box, (base, size, allows) = probes(w).box, probes(part).region
    kept = (base == of(bases)(box.tag)) & (base + size == of(ends)(box.tag)) & (allows == of(allowed)(box.tag))
    b.invariant(implies(box.valid & ~box.null, kept))


def load_window(only: str | None) -> Bench:
    """LOAD with arbitrary instructions, regions, memory and scratchpads."""
    b = Bench(only)
    load = Load(SMALL)
    inputs, *values = _regions(b, load)
    b.cut(load.data, "data")  # the data half does as it likes
    opened(load)
    b.part("load", load, **inputs)
    instructions(b, load, "LOAD")
    b.state(
        "window",
        "LOAD: arbitrary instructions, eight arbitrary regions: bursts lie in the readable region they name, and are "
        "those that the read port is asked for",
        Cut("load.walker.inside2", 7),
    )
    _window(b, load, "LOAD", 0, *values)
    b.check("window", load.read.valid == load.walker.o_valid)
    b.check("window", load.read.address == load.walker.o_address)
    b.check("window", load.read.beats == load.walker.o_beats)
    return b


def store_window(only: str | None) -> Bench:
    """STORE with arbitrary instructions, regions, memory and rows."""
    b = Bench(only)
    store = Store(SMALL)
    inputs, *values = _regions(b, store)
    opened(store)
    b.part("store", store, **inputs)
    instructions(b, store, "STORE")
    b.state(
        "window",
        "STORE: arbitrary instructions, eight arbitrary regions: bursts lie in the writable region they name",
        Cut("store.walker.inside2"),
    )
    _window(b, store, "STORE", 2 * SEMAPHORE_BITS, *values)
    return b


def fetch_window(only: str | None) -> Bench:
    """FETCH from START on, with any program, any region and any program registers."""
    b = Bench(only)
    base, size, end = region(b, SMALL, "region")
    allowed = b.constant(1, "allowed")
    offset, length = b.constant(32, "offset"), b.constant(LENGTH_BITS, "length")
    first = Signal(init=1, name="first")
    b.m.d.sync += first.eq(0)
    f = Fetch(SMALL)
    opened(f)
    b.part("fetch", f, start=first, base=base, size=size, allowed=allowed, offset=offset, length=length)
    b.check(
        "window",
        implies(f.read.valid, allowed & within(SMALL, f.read.address, f.read.beats, base, end)),
        "FETCH: arbitrary program registers, program and region: bursts lie in the readable region",
        Cut("fetch.present", 6),
    )
    b.check(
        "legal",
        implies(f.read.valid, legal_burst(SMALL, f.read.address, f.read.beats)),
        "FETCH: bursts have 1 to `burst_beats` whole beats and do not cross 4 KiB",
        Cut("fetch.to_end", 7),
    )
    # Once: START, three cycles of setup, then requests from the first beat of the program to its last.
    aligned = Cat(C(0, 4), offset[4:])
    there = Mux(allowed & (size > aligned), size - aligned, 0)[:32]
    i = probes(f)
    before = first | (i.setup != 0)
    b.invariant((first + i.setup[0] + i.setup[1] + i.setup[2]) <= 1)
    b.invariant(implies(before, ~i.active & (i.beats_left == 0)))
    b.invariant(implies(i.setup[1], i.available == there))
    b.invariant(implies(i.setup[2], (i.present << 4) <= there))
    b.invariant(implies((i.setup[1] | i.setup[2]) & (there != 0), (i.address << 2) == base + aligned))
    rest = (i.address + i.beats_left) * SMALL.bus_bytes
    inside = allowed & ((i.address << 2) >= base) & (rest < end + SMALL.bus_bytes)
    b.invariant(implies(i.beats_left != 0, inside))
    chunk = fetch_burst_bytes(SMALL) // SMALL.bus_bytes
    to_end = chunk - (i.address & (chunk - 1))
    b.invariant(i.next_beats == Mux(i.beats_left < to_end, i.beats_left, to_end))
    return b


def axi_read(only: str | None, c: NpuConfig = SMALL) -> Bench:
    """The read port with arbitrary legal requests and a memory that answers bursts it was asked for."""
    b = Bench(only)
    r = AxiRead(c)
    opened(r)
    owners = probes(r).owners
    opened(owners)
    b.part("read", r)
    for who in (r.fetch, r.load):
        b.assume(implies(who.valid, legal_burst(c, who.address, who.beats)))
    sent, ended = r.ar.valid & r.ar.ready, r.r.valid & r.r.ready & r.r.last
    open_ = Signal(range(2 * c.read_outstanding + 2), name="open")  # asked for on AR, last beat not taken
    b.m.d.sync += open_.eq(open_ + sent - ended)
    b.assume(implies(r.r.valid, open_ != 0))
    waits = b.past(r.ar.valid & ~r.ar.ready, "waits")
    b.check(
        "stable",
        implies(waits, r.ar.valid & (r.ar.addr == b.past(r.ar.addr, "araddr"))),
        "AR: valid stays until ready, address and length do not change",
        Cut("read.ar__valid"),
    )
    b.check("stable", implies(waits, r.ar.len == b.past(r.ar.len, "arlen")))
    b.check(
        "legal",
        implies(r.ar.valid, legal_burst(c, r.ar.addr, r.ar.len + 1)),
        "AR: 1 to `burst_beats` whole beats that do not cross 4 KiB, if the requests are such",
        Cut("read.ar__len"),
    )
    b.check(
        "outstanding",
        open_ + sent <= c.read_outstanding,
        "at most `read_outstanding` bursts are in flight",
        Cut("read.owners.i_ready"),
    )
    b.check(
        "accepted",
        implies(r.r.valid & ~r.r.ready, ~r.halt & r.load.beat & ~r.load.beat_ready),
        "R: a beat for FETCH, and after a halt any beat, is taken at once; one for LOAD when LOAD takes it",
        Cut("read.r__ready"),
    )
    b.invariant(owners.level == open_ + r.ar.valid)
    contents(b, owners, "owners")
    return b


def axi_write(only: str | None, c: NpuConfig = SMALL) -> Bench:
    """The write port with arbitrary legal bursts and beats, and a memory that answers bursts it has received."""
    b = Bench(only)
    w = AxiWrite(c, 1)
    opened(w)
    inside = probes(w)
    opened(inside.pending)
    b.part("write", w)
    b.assume(implies(w.burst_valid & ~w.burst_null, legal_burst(c, w.burst_address, w.burst_beats)))
    b.assume(implies(b.past(w.halt, "halted"), w.halt))
    waits_aw, waits_w = b.past(w.aw.valid & ~w.aw.ready, "waits_aw"), b.past(w.w.valid & ~w.w.ready, "waits_w")
    new_aw, new_w = w.aw.valid & ~waits_aw, w.w.valid & ~waits_w
    b.check(
        "aw_stable",
        implies(waits_aw, w.aw.valid & (w.aw.addr == b.past(w.aw.addr, "awaddr"))),
        "AW: valid stays until ready, address and length do not change",
        Cut("write.aw__valid"),
    )
    b.check("aw_stable", implies(waits_aw, w.aw.len == b.past(w.aw.len, "awlen")))
    for name in ("data", "strb", "last"):
        port = getattr(w.w, name)
        b.check(
            "w_stable",
            implies(waits_w, w.w.valid & (port == b.past(port, f"w{name}"))),
            "W: valid stays until ready; data, strobes and WLAST do not change",
            Cut("write.w__data"),
        )
    b.check(
        "legal",
        implies(w.aw.valid, legal_burst(c, w.aw.addr, w.aw.len + 1)),
        "AW: 1 to `burst_beats` whole beats that do not cross 4 KiB, if the bursts are such",
        Cut("write.aw__len"),
    )

    # Beats of announced bursts that have not appeared on W yet.
    due, now = Signal(range(2 * c.burst_beats + 2), name="due"), Signal(range(2 * c.burst_beats + 2), name="due_now")
    b.m.d.comb += now.eq(Mux(new_aw, w.aw.len + 1, due))
    b.m.d.sync += due.eq(now - new_w)
    b.check(
        "no_orphan",
        implies(new_w, now != 0) & implies(new_aw, due == 0),
        "every W beat belongs to a burst that is or was on AW, bursts do not overlap",
        Cut("write.w__valid"),
    )
    b.check(
        "wlast",
        implies(new_w, w.w.last == (now == 1)),
        "WLAST is with the last beat of a burst and no other, after a halt too",
        Cut("write.w__last"),
    )
    b.invariant((now - new_w == inside.left) & (w.in_burst == (inside.left != 0)))
    b.invariant(implies(new_aw, new_w))

    # Bursts not answered; a memory answers when address and last beat have been taken.
    answered = w.b.valid & w.b.ready
    limit = c.write_outstanding
    open_ = Signal(range(2 * limit + 2), name="open")
    addressed, finished = Signal(range(4 * limit), name="addressed"), Signal(range(4 * limit), name="finished")
    b.m.d.sync += [
        open_.eq(open_ + new_aw - answered),
        addressed.eq(addressed + (w.aw.valid & w.aw.ready) - answered),
        finished.eq(finished + (w.w.valid & w.w.ready & w.w.last) - answered),
    ]
    b.assume(implies(w.b.valid, (addressed != 0) & (finished != 0)))
    b.check(
        "outstanding",
        open_ + new_aw <= limit,
        "at most `write_outstanding` bursts wait for their response",
        Cut("write.pending.i_ready"),
    )
    b.invariant(open_ + new_aw == addressed + w.aw.valid)
    b.invariant(open_ + new_aw == finished + ((inside.left != 0) | (w.w.valid & w.w.last)))
    b.invariant(implies(w.w.valid, w.w.last == (inside.left == 0)))
    waiting = contents(b, inside.pending, "pending")
    b.invariant(reduce(lambda x, y: x + y, [there & ~entry[1] for there, entry in waiting]) == open_ + new_aw)

    refused = Signal(range(limit + 2), name="refused")
    b.m.d.sync += refused.eq(Mux(w.b.valid & ~w.b.ready, Mux(refused == limit + 1, refused, refused + 1), 0))
    b.check(
        "b_accepted",
        refused < limit,
        "B: a response is taken within `write_outstanding` cycles (SYNCs before it complete first)",
        Cut("write.b__ready"),
    )
    nulls = [there & entry[1] for there, entry in waiting]
    leading = reduce(lambda x, y: x + y, [Cat(nulls[: n + 1]).all() for n in range(limit)])  # SYNCs before all bursts
    b.invariant(implies(open_ + new_aw != 0, refused + leading < limit) & implies(refused != 0, open_ != 0))
    return b


def write_drain(only: str | None) -> Bench:
    """The write port after `halt`, with a memory that takes everything offered: begun bursts end by themselves."""
    b = Bench(only)
    c = SMALL
    w = AxiWrite(c, 1)
    opened(w)
    b.part("write", w)
    b.assume(implies(w.burst_valid & ~w.burst_null, legal_burst(c, w.burst_address, w.burst_beats)))
    b.assume(implies(b.past(w.halt, "halted"), w.halt) & implies(w.halt, w.aw.ready & w.w.ready))
    since = Signal(range(c.burst_beats + 4), name="since")
    b.m.d.sync += since.eq(Mux(w.halt, Mux(since == c.burst_beats + 3, since, since + 1), 0))
    b.check(
        "ends",
        implies(since > c.burst_beats, ~w.w.valid & ~w.aw.valid & ~w.in_burst),
        "after a halt a begun burst gets its AW and all its beats, one per cycle if the memory takes them",
        Cut("write.w__valid"),
    )
    return b


def constants(only: str | None) -> Bench:
    """The whole NPU: what is tied on its AXI master."""
    b = Bench(only)
    npu = b.part("npu", Npu(SMALL))
    size = (SMALL.bus_bytes - 1).bit_length()
    for channel in (npu.axi.ar, npu.axi.aw):
        b.check("incr", channel.burst == 1, "NPU: every burst is INCR, every beat has the width of the bus")
        b.check("incr", channel.size == size)
    return b
