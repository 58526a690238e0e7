"""Benches of the AXI slave of the SDRAM: `AxiSegments` between its queues and a controller that executes segments in
their order, whenever it likes."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Mux, Signal, Value

from tilewright.fpga.memory import DECERR, OKAY
from tilewright.fpga.sdram.axi import AxiSegments, depths
from tilewright.fpga.sdram.controller import PAIR_BYTES, SEGMENT_PAIRS
from tilewright.hw.parts.queue import Queue
from tilewright.isa.config import NpuConfig
from verification.formal.bench import Bench, contents, distance, implies, opened, registers
from verification.formal.bus.axi_benches import keeps, legal_burst
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: Bits of an address of the memory in pairs: 16 KiB. Addresses of the bus reach beyond it.
_PAIR_BITS = 12
#: Segments of either direction that the controller has taken and not executed.
_SEGMENTS = 4
#: Bursts in flight that the bench keeps in mind.
_BURSTS = 8
#: Bits of a segment's count less one.
_COUNT = (SEGMENT_PAIRS - 1).bit_length()


class _Slave:
    """`AxiSegments` in its surroundings.

    Attributes:
        front: it.  module: its inside.
        queues: by direction, the segments that the controller has not executed.  done: pairs of the oldest that are.
        come, left, answered: as the queues of the channels count.  taken, beats, answers: as the slave has moved them.
        stored, unread, waiting: entries of the queues of W, R and B, as far as is known.
        low: bits of a pair's number within its beat.
    """

    def __init__(self, b: Bench, c: NpuConfig) -> None:
        self.front = f = AxiSegments(c, _PAIR_BITS)
        self.low = (c.bus_bytes // PAIR_BYTES - 1).bit_length()
        self.module = opened(f)
        come, left, answered = (Signal.like(s, name=s.name) for s in (f.w_come, f.r_left, f.b_left))
        given = {
            "w_come": come, "r_left": left, "b_left": answered, "o_ready": None, "w_take": None, "w_last": None,
            "w_tag": None, "r_valid": None, "r_last": None, "r_tag": None,
        }  # fmt: skip
        b.part("slave", f, **given)
        for name in ("ar", "aw"):
            channel = getattr(f.axi, name)
            b.assume(implies(channel.valid, legal_burst(c, channel.addr, channel.len + 1)))
            keeps(b, name, channel, "addr", "len", "id")
        self.queues: dict[str, Queue] = {}
        self.done: dict[str, Signal] = {}
        for name, moves, last, tag, mine in (
            ("reads", f.r_valid, f.r_last, f.r_tag, ~f.o_write), ("writes", f.w_take, f.w_last, f.w_tag, f.o_write),
        ):  # fmt: skip
            queue = self.queues[name] = Queue(_COUNT + f.TAG_BITS, _SEGMENTS)
            opened(queue)
            b.m.submodules[name] = queue
            done = self.done[name] = Signal(_COUNT, name=f"{name}_done")
            b.m.d.comb += [
                queue.i_valid.eq(f.o_valid & f.o_ready & mine),
                queue.i_payload.eq(Cat(f.o_count, f.o_tag)),
                moves.eq(queue.o_valid & b.free(1, f"{name}_move")),
                last.eq(done == queue.o_payload[:_COUNT]),
                tag.eq(queue.o_payload[_COUNT:]),
                queue.o_ready.eq(moves & last),
            ]
            b.m.d.sync += done.eq(Mux(moves, Mux(last, 0, done + 1), done))
        b.m.d.comb += f.o_ready.eq(
            b.free(1, "takes") & Mux(f.o_write, self.queues["writes"].i_ready, self.queues["reads"].i_ready)
        )
        # What the queues of the channels count (`crossing*`, `counts`): beats to write that have come, beats read and
        # responses that have left. A beat that has come and was not taken is there.
        taken, beats, answers = (Signal.like(s, name=f"{s.name}_true") for s in (come, left, answered))
        b.m.d.sync += [
            taken.eq(taken + f.axi.w.ready),
            beats.eq(beats + f.axi.r.valid),
            answers.eq(answers + f.axi.b.valid),
        ]

        self.come, self.left, self.answered = come, left, answered
        self.taken, self.beats, self.answers = taken, beats, answers
        self.stored, self.unread = distance(come, taken), distance(beats, left)
        self.waiting = distance(answers, answered)
        room = self.stored != depths(c)["w"]
        for counter, more, may in (
            (come, "comes", room), (left, "leaves", self.unread != 0), (answered, "answered", self.waiting != 0),
        ):  # fmt: skip
            b.m.d.sync += counter.eq(counter + (b.free(1, more) & may))
        b.assume(implies(self.stored != 0, f.axi.w.valid))


def claims(only: str | None, c: NpuConfig = SMALL) -> Bench:
    """Beats are there when they are written; what is read and what is answered has room."""
    b = Bench(only)
    s = _Slave(b, c)
    f, depth, inside = s.front, depths(c), registers(s.module)
    b.check(
        "beats",
        implies(f.w_take, s.stored != 0) & implies(f.axi.w.ready, f.w_take),
        "SDRAM, `AxiSegments`, W: whenever the controller writes a pair, its beat has come",
        Cut("slave.aw_splitter.o_count", 14),
    )
    b.check(
        "room",
        implies(f.axi.r.valid, s.unread < depth["r"]),
        "SDRAM, `AxiSegments`, R: whenever the controller reads a pair, the queue has room for it",
        Cut("slave.read_may", 110),
    )
    b.check(
        "answers",
        implies(f.axi.b.valid, s.waiting < depth["b"]),
        "SDRAM, `AxiSegments`, B: whenever a burst is answered, the queue has room for the response",
        Cut("slave.axi__b__valid", 14),
    )
    # What segments that have gone claim is what they have yet to move: beats of which not all pairs are.
    beats_left: dict[str, Value] = {}
    ends: Value = C(0)
    for name, queue in s.queues.items():
        total: Value = C(0)
        for n, (held, entry) in enumerate(contents(b, queue, name)):
            total = total + Mux(held, entry[s.low : _COUNT] + 1, 0)
            b.invariant(implies(held, entry[: s.low] == (1 << s.low) - 1))
            if name == "writes":
                ends = ends + (held & entry[_COUNT])
            if n == 0:
                b.invariant(implies(held, (s.done[name] <= entry[:_COUNT]) & (queue.o_payload == entry)))
                b.invariant(implies(~held, s.done[name] == 0))
        beats_left[name] = total - s.done[name][s.low :]
    for name, number in (("writes", "to_write"), ("reads", "from_memory")):
        b.invariant(implies(s.low, inside[number] == s.done[name][: s.low]))
    beats, answers, room = (inside[f"{name}_claimed"] for name in ("beats", "answers", "room"))
    to_write, to_read = beats_left["writes"], beats_left["reads"]
    b.invariant((distance(beats, s.taken) == to_write) & (to_write <= s.stored) & (s.stored <= depth["w"]))
    b.invariant((distance(room, s.beats) == to_read) & (to_read + s.unread <= depth["r"]))
    b.invariant((distance(answers, s.answers) == ends) & (ends + s.waiting <= depth["b"]))
    # So it is for the segment that may go.
    read, write = (getattr(s.module.submodules, f"{name}_splitter") for name in ("ar", "aw"))
    free = distance(answers, s.answered) < depth["b"]
    b.invariant(implies(inside["write_may"], write.o_valid & (distance(s.come, beats) > write.o_count) & free))
    b.invariant(
        implies(inside["read_may"], read.o_valid & (distance(room, s.left) <= depth["r"] - (SEGMENT_PAIRS >> s.low)))
    )
    return b


def slave(only: str | None, c: NpuConfig = SMALL) -> Bench:
    """Bursts, their segments, and what answers them."""
    b = Bench(only)
    s = _Slave(b, c)
    pairs, count = 1 << s.low, 8 + s.low  # of a beat; bits of the number of a pair within its burst
    f = s.front
    end = _PAIR_BITS + 2
    for name, channel, moves in (
        ("reads", f.axi.ar, f.r_valid), ("writes", f.axi.aw, f.w_take),
    ):  # fmt: skip
        # Bursts whose segments have not all gone, and those that are not answered.
        asked = channel.valid & channel.ready
        goes = f.o_valid & f.o_ready & (f.o_write == (name == "writes"))
        queues = {}
        for purpose in ("going", "open"):
            queue = queues[purpose] = Queue(_PAIR_BITS + count + 2, _BURSTS)
            b.m.submodules[f"{name}_{purpose}"] = queue
            outside = channel.addr[end:].any()
            b.m.d.comb += [
                queue.i_valid.eq(asked),
                queue.i_payload.eq(Cat(C(pairs - 1, s.low), channel.len, channel.id, outside, channel.addr[2:end])),
            ]
            b.assume(implies(asked, queue.i_ready))
        going, burst = queues["going"].o_payload, queues["open"].o_payload
        sent, moved = Signal(count, name=f"{name}_sent"), Signal(count, name=f"{name}_moved")
        final = sent + f.o_count == going[:count]
        last, within = moved == burst[:count], moved[: s.low]
        whole = within == pairs - 1  # the last pair of a beat
        b.m.d.comb += [queues["going"].o_ready.eq(goes & final), queues["open"].o_ready.eq(moves & last)]
        b.m.d.sync += [
            sent.eq(Mux(goes, Mux(final, 0, sent + f.o_count + 1), sent)),
            moved.eq(Mux(moves, Mux(last, 0, moved + 1), moved)),
        ]
        place = (going[count + 2 :] + sent)[:_PAIR_BITS]
        right = queues["going"].o_valid & (f.o_pair == place) & (sent + f.o_count <= going[:count])
        b.check(
            "segments",
            implies(goes, right & (f.o_tag == Cat(final, going[count : count + 2]))),
            "SDRAM, `AxiSegments`: the segments of a burst follow each other from its first beat to its last,"
            " which is marked, with its ID and whether it is beyond the memory; bursts of a direction go in "
            "their order",
            Cut("slave.o_pair", 12),
        )
        there, identity, outside = queues["open"].o_valid, burst[count], burst[count + 1]
        response = Mux(outside, DECERR, OKAY)
        if name == "reads":
            r, words = f.axi.r, Signal(8 * c.bus_bytes, name="words_read")
            word = Cat(words[8 * PAIR_BYTES :], f.r_data)
            with b.m.If(f.r_valid):
                b.m.d.sync += words.eq(word)
            b.check(
                "r_beats",
                r.valid == (f.r_valid & whole),
                "SDRAM, `AxiSegments`, R: as many beats as ARLEN says, in the order of the bursts, RLAST with the"
                " last, with ID and response of the burst",
                Cut("slave.axi__r__last", 12),
            )
            b.check("r_beats", implies(r.valid, there & (r.last == last) & (r.id == identity) & (r.resp == response)))
            b.check("r_beats", implies(r.valid, r.data == word))
        else:
            a, w = f.axi.b, f.axi.w
            b.check(
                "b_once",
                a.valid == (moves & last),
                "SDRAM, `AxiSegments`, B: one response for a burst, with its last beat, with ID and response of "
                "the burst",
                Cut("slave.axi__b__valid", 12),
            )
            b.check("b_once", implies(a.valid, there & (a.id == identity) & (a.resp == response)))
            data, strobe = w.data.word_select(within, 8 * PAIR_BYTES), w.strb.word_select(within, PAIR_BYTES)
            mask = Mux(outside, (1 << PAIR_BYTES) - 1, ~strobe)
            b.check(
                "words",
                implies(moves, (f.w_data == data) & (f.w_mask == mask)),
                "SDRAM, `AxiSegments`, W: a pair is the beat at the output of the queue, with its strobes; none "
                "of a burst beyond the memory is written",
                Cut("slave.w_mask", 12),
            )
    return b
