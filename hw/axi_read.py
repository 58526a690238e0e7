"""The read side of the AXI master, shared by FETCH and LOAD."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.queue import Queue
from isa.config import NpuConfig


class AxiRead(wiring.Component):
    """Arbitrates burst requests (FETCH first), keeps the owners of bursts in flight in order and hands out the beats.

    A request is in flight from its acceptance here until its last beat is taken; at most `read_outstanding` are.

    Latency: a request accepted in cycle t is on AR in cycle t+1; beats pass through in the same cycle.

    Ports:
        {fetch,load}_valid, _ready, _address, _beats: requests.
        fetch_beat, load_beat: a beat is offered; load_beat_ready: LOAD takes it (FETCH always does).
        data, bad: the beat; its response is an error.  beat_address: where it comes from.
        arvalid, arready, araddr, arlen, rvalid, rready, rdata, rresp, rlast: AXI.
        idle: nothing in flight.  load_idle: nothing for LOAD.
        halt: accept no requests, take and drop all beats.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.beat_bits = config.burst_beats.bit_length()
        members: dict[str, object] = {}
        for who in ("fetch", "load"):
            members |= {
                f"{who}_valid": In(1),
                f"{who}_ready": Out(1),
                f"{who}_address": In(config.axi_address_bits),
                f"{who}_beats": In(self.beat_bits),
                f"{who}_beat": Out(1),
            }
        super().__init__(
            {
                **members,
                "load_beat_ready": In(1),
                "data": Out(config.axi_data_bits),
                "bad": Out(1),
                "beat_address": Out(config.axi_address_bits),
                "arvalid": Out(1),
                "arready": In(1),
                "araddr": Out(config.axi_address_bits),
                "arlen": Out(8),
                "rvalid": In(1),
                "rready": Out(1),
                "rdata": In(config.axi_data_bits),
                "rresp": In(2),
                "rlast": In(1),
                "idle": Out(1),
                "load_idle": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.owners = owners = Queue(1 + c.axi_address_bits, c.read_outstanding)
        can, accept, choose_load = Signal(), Signal(), Signal()
        address, beats = Signal(c.axi_address_bits), Signal(self.beat_bits)
        m.d.comb += [
            can.eq((~self.arvalid | self.arready) & owners.i_ready & ~self.halt),
            choose_load.eq(~self.fetch_valid),
            self.fetch_ready.eq(can),
            self.load_ready.eq(can & choose_load),
            accept.eq(can & (self.fetch_valid | self.load_valid)),
            address.eq(Mux(choose_load, self.load_address, self.fetch_address)),
            beats.eq(Mux(choose_load, self.load_beats, self.fetch_beats)),
            owners.i_valid.eq(accept),
            owners.i_payload.eq(Cat(choose_load, address)),
        ]
        with m.If(accept):
            m.d.sync += [self.arvalid.eq(1), self.araddr.eq(address), self.arlen.eq(beats - 1)]
        with m.Elif(self.arready):
            m.d.sync += self.arvalid.eq(0)

        owner, start = owners.o_payload[0], owners.o_payload[1:]
        taken = Signal()
        position = Signal(self.beat_bits)
        m.d.comb += [
            self.fetch_beat.eq(self.rvalid & ~owner & ~self.halt),
            self.load_beat.eq(self.rvalid & owner & ~self.halt),
            self.rready.eq(self.halt | ~owner | self.load_beat_ready),
            taken.eq(self.rvalid & self.rready),
            self.data.eq(self.rdata),
            self.bad.eq(self.rresp[1]),
            self.beat_address.eq(start + (position << (c.bus_bytes - 1).bit_length())),
            owners.o_ready.eq(taken & self.rlast),
            self.idle.eq(~owners.o_valid & ~self.arvalid),
        ]
        loads = Signal(range(c.read_outstanding + 1))
        m.d.sync += loads.eq(loads + (accept & choose_load) - (taken & self.rlast & owner))
        m.d.comb += self.load_idle.eq(loads == 0)
        with m.If(taken):
            m.d.sync += position.eq(Mux(self.rlast, 0, position + 1))
        self.owners = owners  # for `hw.formal`
        return m
