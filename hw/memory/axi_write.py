"""The write side of the AXI master, used by STORE."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import BURST_INCR, CACHE_NORMAL, Axi4
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.parts.queue import Queue
from tilewright.isa.config import NpuConfig


class AxiWrite(wiring.Component):
    """Joins bursts and beats. AW and the first beat of a burst appear together, when that beat is ready; at most
    `write_outstanding` bursts wait for their response, which is accepted at once
    (or a cycle later while a STORE_SYNC completes).

    Latency: a beat taken in cycle t is on W in cycle t+1. No cycle is lost between bursts.

    Ports:
        burst_valid, burst_ready, burst_address, burst_beats, burst_last, burst_tag: bursts, each taken with its first
            beat.  burst_null: no burst, but completed in its turn.
        beat_valid, beat_ready, beat_data, beat_strobe: beats.
        step, stalled: a beat is taken; a burst waits for a beat or for the bus.
        give, give_tag: all responses of the instruction whose last burst has `burst_last` are in.
        error, error_tag, error_address: a burst was answered with an error.
        aw, w, b: AXI.
        in_burst: beats of the current burst are still to come.  idle: nothing in flight.
        halt: begin no bursts; complete those begun with beats that write nothing.

    Probes:
        left: beats of the current burst that are still to be taken.  pending: the queue of bursts without a response.
    """

    def __init__(self, config: NpuConfig, tag_bits: int) -> None:
        self.config, self.tag_bits = config, tag_bits
        self.beat_bits = config.burst_beats.bit_length()
        axi = Axi4(config).members
        super().__init__(
            {
                "burst_valid": In(1),
                "burst_ready": Out(1),
                "burst_address": In(config.axi_address_bits),
                "burst_beats": In(self.beat_bits),
                "burst_last": In(1),
                "burst_null": In(1),
                "burst_tag": In(tag_bits),
                "beat_valid": In(1),
                "beat_ready": Out(1),
                "beat_data": In(config.axi_data_bits),
                "beat_strobe": In(config.bus_bytes),
                "step": Out(1),
                "stalled": Out(1),
                "give": Out(1),
                "give_tag": Out(tag_bits),
                "error": Out(1),
                "error_tag": Out(tag_bits),
                "error_address": Out(config.axi_address_bits),
                "aw": axi["aw"],
                "w": axi["w"],
                "b": axi["b"],
                "in_burst": Out(1),
                "idle": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        aw, w, b = self.aw, self.w, self.b
        m.submodules.pending = pending = Queue(2 + self.tag_bits + c.axi_address_bits, c.write_outstanding)
        left = Signal(self.beat_bits)  # beats of the current burst still to be taken; `in_burst` if any
        room, begin, skip, dummy = Signal(), Signal(), Signal(), Signal()
        next_burst = ~self.in_burst & self.burst_valid & pending.i_ready & ~self.halt
        m.d.comb += [
            room.eq(~w.valid | w.ready),
            skip.eq(next_burst & self.burst_null),
            begin.eq(next_burst & ~self.burst_null & self.beat_valid & room & (~aw.valid | aw.ready)),
            dummy.eq(self.halt & room & self.in_burst),
            self.step.eq(begin | (self.beat_valid & room & self.in_burst & ~self.halt)),
            self.stalled.eq(((self.burst_valid & ~self.burst_null) | self.in_burst) & ~self.step & ~self.halt),
            self.burst_ready.eq(begin | skip),
            self.beat_ready.eq(self.step),
            pending.i_valid.eq(begin | skip),
            pending.i_payload.eq(Cat(self.burst_last, self.burst_null, self.burst_tag, self.burst_address)),
        ]
        beats = Signal(self.beat_bits)  # including the one taken now
        m.d.comb += beats.eq(Mux(begin, self.burst_beats, left))
        with m.If(self.step | dummy):
            m.d.sync += [
                left.eq(beats - 1),
                self.in_burst.eq(beats != 1),
                w.valid.eq(1),
                w.last.eq(beats == 1),
                w.data.eq(self.beat_data),
                w.strb.eq(Mux(dummy, 0, self.beat_strobe)),
            ]
        with m.Elif(w.ready):
            m.d.sync += w.valid.eq(0)
        with m.If(begin):
            m.d.sync += [
                aw.valid.eq(1),
                aw.addr.eq(self.burst_address),
                aw.len.eq(self.burst_beats - 1),
            ]
        with m.Elif(aw.ready):
            m.d.sync += aw.valid.eq(0)

        last, null, tag, address = Signal(), Signal(), Signal(self.tag_bits), Signal(c.axi_address_bits)
        at_null = pending.o_valid & null
        taken = b.valid & pending.o_valid & ~null
        m.d.comb += [
            Cat(last, null, tag, address).eq(pending.o_payload),
            b.ready.eq(~at_null),
            pending.o_ready.eq(at_null | b.valid),
            self.give.eq((at_null | (taken & last & ~b.resp[1])) & ~self.halt),
            self.give_tag.eq(tag),
            self.error.eq(taken & b.resp[1]),
            self.error_tag.eq(tag),
            self.error_address.eq(address),
            self.idle.eq(~aw.valid & ~w.valid & ~self.in_burst & ~pending.o_valid),
        ]
        m.d.comb += [
            aw.id.eq(0),
            aw.size.eq((c.bus_bytes - 1).bit_length()),
            aw.burst.eq(BURST_INCR),
            aw.cache.eq(CACHE_NORMAL),
            aw.prot.eq(0),
        ]
        unread(m, b.id)  # there is one
        declare_probes(self, left=left, pending=pending)
        return m
