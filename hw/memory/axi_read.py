"""The read side of the AXI master, shared by FETCH and LOAD."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import BURST_INCR, CACHE_NORMAL, Axi4, ReadPort
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.parts.queue import Queue
from tilewright.isa.config import NpuConfig


class AxiRead(wiring.Component):
    """Arbitrates burst requests (FETCH first), keeps the owners of bursts in flight in order and hands out the beats.

    A request is in flight from its acceptance here until its last beat is taken; at most `read_outstanding` are.

    Latency: a request accepted in cycle t is on AR in cycle t+1; beats pass through in the same cycle.

    Ports:
        fetch, load: the engines; FETCH always takes its beats.
        ar, r: AXI.
        idle: nothing in flight.
        halt: accept no requests, take and drop all beats.

    Probes:
        owners: the queue of bursts in flight: whether LOAD owns the burst, and its address.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.beat_bits = config.burst_beats.bit_length()
        axi = Axi4(config).members
        super().__init__(
            {
                "fetch": In(ReadPort(config, may_wait=False)),
                "load": In(ReadPort(config, may_wait=True)),
                "ar": axi["ar"],
                "r": axi["r"],
                "idle": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        fetch, load, ar, r = self.fetch, self.load, self.ar, self.r
        m.submodules.owners = owners = Queue(1 + c.axi_address_bits, c.read_outstanding)
        can, accept, choose_load = Signal(), Signal(), Signal()
        address, beats = Signal(c.axi_address_bits), Signal(self.beat_bits)
        m.d.comb += [
            can.eq((~ar.valid | ar.ready) & owners.i_ready & ~self.halt),
            choose_load.eq(~fetch.valid),
            fetch.ready.eq(can),
            load.ready.eq(can & choose_load),
            accept.eq(can & (fetch.valid | load.valid)),
            address.eq(Mux(choose_load, load.address, fetch.address)),
            beats.eq(Mux(choose_load, load.beats, fetch.beats)),
            owners.i_valid.eq(accept),
            owners.i_payload.eq(Cat(choose_load, address)),
        ]
        with m.If(accept):
            m.d.sync += [ar.valid.eq(1), ar.addr.eq(address), ar.len.eq(beats - 1)]
        with m.Elif(ar.ready):
            m.d.sync += ar.valid.eq(0)

        m.d.comb += [
            ar.id.eq(0),
            ar.size.eq((c.bus_bytes - 1).bit_length()),
            ar.burst.eq(BURST_INCR),
            ar.cache.eq(CACHE_NORMAL),
            ar.prot.eq(0),
        ]

        owner, start = owners.o_payload[0], owners.o_payload[1:]
        taken = Signal()
        position = Signal(self.beat_bits)
        m.d.comb += [
            fetch.beat.eq(r.valid & ~owner & ~self.halt),
            load.beat.eq(r.valid & owner & ~self.halt),
            r.ready.eq(self.halt | ~owner | load.beat_ready),
            taken.eq(r.valid & r.ready),
            fetch.data.eq(r.data),
            load.data.eq(r.data),
            fetch.bad.eq(r.resp[1]),
            load.bad.eq(r.resp[1]),
            load.beat_address.eq(start + (position << (c.bus_bytes - 1).bit_length())),
            owners.o_ready.eq(taken & r.last),
            self.idle.eq(~owners.o_valid & ~ar.valid),
        ]
        loads = Signal(range(c.read_outstanding + 1))
        m.d.sync += loads.eq(loads + (accept & choose_load) - (taken & r.last & owner))
        m.d.comb += load.idle.eq(loads == 0)
        with m.If(taken):
            m.d.sync += position.eq(Mux(r.last, 0, position + 1))
        unread(m, r.id)  # there is one
        declare_probes(self, owners=owners)
        return m
