"""The queues between the bus and the controller of an SDRAM on the clock of the NPU."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fpga.memory import unread_attributes
from fpga.sdram.crossing import CrossedAxi
from hw.connections import unread
from hw.interfaces import Axi4
from hw.queue import BlockQueue, Queue
from isa.config import NpuConfig


class AxiQueues(wiring.Component):
    """AXI4 with room for what `AxiSegments` asks for. Beats lie in block RAM.

    Parameters and ports as `fpga.sdram.crossing.AxiCrossing`, in one clock.
    """

    def __init__(self, config: NpuConfig, depths: dict[str, int]) -> None:
        self.depths = depths
        super().__init__(
            {
                "axi": In(Axi4(config)),
                "far": Out(CrossedAxi(config)),
                "w_come": Out(range(2 * depths["w"])),
                "r_left": Out(range(2 * depths["r"])),
                "b_left": Out(range(2 * depths["b"])),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for channel, names in CrossedAxi.FIELDS.items():
            onward = channel in ("ar", "aw", "w")
            source, target = (self.axi, self.far) if onward else (self.far, self.axi)
            i, o = getattr(source, channel), getattr(target, channel)
            fields: list[Any] = [getattr(i, name) for name in names]
            kind = BlockQueue if channel in ("w", "r") else Queue
            m.submodules[channel] = queue = kind(sum(map(len, fields)), self.depths[channel])
            m.d.comb += [
                queue.i_valid.eq(i.valid),
                i.ready.eq(queue.i_ready),
                queue.i_payload.eq(Cat(*fields)),
                o.valid.eq(queue.o_valid),
                queue.o_ready.eq(o.ready),
                Cat(*[getattr(o, name) for name in names]).eq(queue.o_payload),
            ]
        w, r, b = self.axi.w, self.axi.r, self.axi.b
        for count, channel in ((self.w_come, w), (self.r_left, r), (self.b_left, b)):
            with m.If(channel.valid & channel.ready):
                m.d.sync += count.eq(count + 1)
        unread_attributes(m, self.axi)
        unread(m, w.last)  # AWLEN counts
        return m
