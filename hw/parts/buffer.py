"""Two registers between a producer and a consumer that do not see each other's handshake."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Buffer(wiring.Component):
    """A queue of two entries whose oldest is in a register. `i_ready`, `o_valid` and `o_payload` come from registers,
    so that no path leads from one side to the other; it still moves one entry per cycle.

    Latency: 1 cycle.

    Parameters:
        width: bits of an entry.

    Ports:
        i_valid, i_ready, i_payload: input stream.  o_valid, o_ready, o_payload: output stream.
        o_load, o_next: `o_payload` becomes `o_next` at the end of this cycle (an entry, if one is there).
    """

    def __init__(self, width: int) -> None:
        self.optional = {"o_load", "o_next"}
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1, init=1),
                "i_payload": In(width),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_payload": Out(width),
                "o_load": Out(1),
                "o_next": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spare, payload = (Signal.like(self.i_payload, name=n, reset_less=True) for n in ("spare", "payload"))
        more = Signal()  # `spare` holds an entry too
        m.d.comb += [
            self.o_payload.eq(payload),
            self.o_load.eq(~self.o_valid | self.o_ready),
            self.o_next.eq(Mux(more, spare, self.i_payload)),
        ]
        m.d.sync += [
            more.eq(~self.o_load & (more | self.i_valid)),
            self.i_ready.eq(self.o_load | ~(more | self.i_valid)),
        ]
        with m.If(~more):
            m.d.sync += spare.eq(self.i_payload)
        with m.If(self.o_load):
            m.d.sync += [self.o_valid.eq(more | self.i_valid), payload.eq(self.o_next)]
        return m
