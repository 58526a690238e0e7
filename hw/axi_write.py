"""The write side of the AXI master, used by STORE."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.queue import Queue
from isa.config import NpuConfig


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
        aw*, w*, b*: AXI.
        in_burst: beats of the current burst are still to come.  idle: nothing in flight.
        halt: begin no bursts; complete those begun with beats that write nothing.
    """

    def __init__(self, config: NpuConfig, tag_bits: int) -> None:
        self.config, self.tag_bits = config, tag_bits
        self.beat_bits = config.burst_beats.bit_length()
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
                "awvalid": Out(1),
                "awready": In(1),
                "awaddr": Out(config.axi_address_bits),
                "awlen": Out(8),
                "wvalid": Out(1),
                "wready": In(1),
                "wdata": Out(config.axi_data_bits),
                "wstrb": Out(config.bus_bytes),
                "wlast": Out(1),
                "bvalid": In(1),
                "bready": Out(1),
                "bresp": In(2),
                "in_burst": Out(1),
                "idle": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.pending = pending = Queue(2 + self.tag_bits + c.axi_address_bits, c.write_outstanding)
        left = Signal(self.beat_bits)  # beats of the current burst still to be taken; `in_burst` if any
        room, begin, skip, dummy = Signal(), Signal(), Signal(), Signal()
        next_burst = ~self.in_burst & self.burst_valid & pending.i_ready & ~self.halt
        m.d.comb += [
            room.eq(~self.wvalid | self.wready),
            skip.eq(next_burst & self.burst_null),
            begin.eq(next_burst & ~self.burst_null & self.beat_valid & room & (~self.awvalid | self.awready)),
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
                self.wvalid.eq(1),
                self.wlast.eq(beats == 1),
                self.wdata.eq(self.beat_data),
                self.wstrb.eq(Mux(dummy, 0, self.beat_strobe)),
            ]
        with m.Elif(self.wready):
            m.d.sync += self.wvalid.eq(0)
        with m.If(begin):
            m.d.sync += [
                self.awvalid.eq(1),
                self.awaddr.eq(self.burst_address),
                self.awlen.eq(self.burst_beats - 1),
            ]
        with m.Elif(self.awready):
            m.d.sync += self.awvalid.eq(0)

        last, null, tag, address = Signal(), Signal(), Signal(self.tag_bits), Signal(c.axi_address_bits)
        at_null = pending.o_valid & null
        taken = self.bvalid & pending.o_valid & ~null
        m.d.comb += [
            Cat(last, null, tag, address).eq(pending.o_payload),
            self.bready.eq(~at_null),
            pending.o_ready.eq(at_null | self.bvalid),
            self.give.eq((at_null | (taken & last & ~self.bresp[1])) & ~self.halt),
            self.give_tag.eq(tag),
            self.error.eq(taken & self.bresp[1]),
            self.error_tag.eq(tag),
            self.error_address.eq(address),
            self.idle.eq(~self.awvalid & ~self.wvalid & ~self.in_burst & ~pending.o_valid),
        ]
        self.left, self.pending = left, pending  # for `hw.formal`
        return m
