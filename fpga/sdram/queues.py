"""The queues between the bus and the controller of an SDRAM on the clock of the NPU."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.fpga.memory import unread_attributes
from tilewright.fpga.sdram.crossing import add_queues, crossing_members
from tilewright.hw.connections import unread
from tilewright.hw.parts.queue import BlockQueue, Queue
from tilewright.isa.config import NpuConfig


class AxiQueues(wiring.Component):
    """AXI4 queues with room for the requests of `AxiSegments`. Beats lie in block RAM.

    Parameters and ports are those of `tilewright.fpga.sdram.crossing.AxiCrossing`, in one clock.
    """

    def __init__(self, config: NpuConfig, depths: dict[str, int]) -> None:
        self.depths = depths
        super().__init__(crossing_members(config, depths))

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def queue(channel: str, onward: bool, width: int) -> BlockQueue | Queue:
            return (BlockQueue if channel in ("w", "r") else Queue)(width, self.depths[channel])

        add_queues(m, self.axi, self.far, queue)
        w, r, b = self.axi.w, self.axi.r, self.axi.b
        for count, channel in ((self.w_come, w), (self.r_left, r), (self.b_left, b)):
            with m.If(channel.valid & channel.ready):
                m.d.sync += count.eq(count + 1)
        unread_attributes(m, self.axi)
        unread(m, w.last)  # AWLEN counts
        return m
