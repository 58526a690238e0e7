"""An SDRAM with the ports of `fpga.memory`."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import wiring

from fpga.memory import memory_members
from fpga.sdram.axi import AxiSegments
from fpga.sdram.chip import SdramChip, pins
from fpga.sdram.controller import PAIR_BYTES, SdramController
from hw.reset import reset_by
from isa.config import NpuConfig

HANDSHAKE = ("valid", "ready")


class SdramMemory(wiring.Component):
    """An SDRAM from address 0 on. The bridge goes first.

    Latency: see docs/fpga.md; after power-on the chip takes SdramChip.start_us and some refreshes before it answers.

    Parameters:
        config: widths of the bus.
        chip: the memory.
        clock_hz: of domain `sync`.

    Ports:
        axi, mem, bus_reset: see `fpga.memory.memory_members`. After `bus_reset` the AXI4 slave takes nothing until
            what was under way has ended.
        sdram_*: see `fpga.sdram.chip.pins`.

    Raises:
        ValueError: the chip does not work at this clock.
    """

    def __init__(self, config: NpuConfig, chip: SdramChip, clock_hz: int) -> None:
        self.config, self.chip = config, chip
        #: Bytes.
        self.size = chip.size
        #: Ports that lead to the pins of the board.
        self.pins = pins(chip)
        # Bit 0 of a tag: a segment of the bridge.
        self.controller = SdramController(chip, clock_hz, 1 + AxiSegments.TAG_BITS)
        super().__init__({**memory_members(config), **self.pins})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = controller = self.controller
        # From a register, as it has far to go: a cycle after `bus_reset`, until the chip has done what was asked for.
        front_reset = Signal(init=1)
        front = AxiSegments(self.config, controller.pair_bits)
        m.submodules.front = reset_by(m, front, front_reset, "front")
        m.d.sync += front_reset.eq(self.bus_reset | (front_reset & ~controller.idle))
        for name in ("r", "b"):
            wiring.connect(m, getattr(front.axi, name), wiring.flipped(getattr(self.axi, name)))
        for name in ("ar", "aw", "w"):
            outer, inner = getattr(self.axi, name), getattr(front.axi, name)
            m.d.comb += [inner.valid.eq(outer.valid), outer.ready.eq(inner.ready & ~front_reset)]
            m.d.comb += [getattr(inner, f).eq(getattr(outer, f)) for f in outer.signature.members if f not in HANDSHAKE]
        for name, member in self.pins.items():
            inward = member.flow == wiring.In  # type: ignore[attr-defined]
            source, target = (self, controller) if inward else (controller, self)
            m.d.comb += getattr(target, name).eq(getattr(source, name))

        # The bridge: one request at a time. It is `busy` until a write has taken its word, or a read is asked for.
        busy, asking, write = Signal(), Signal(), Signal()
        pair = Signal(controller.pair_bits)
        data, strobe = Signal(8 * PAIR_BYTES), Signal(PAIR_BYTES)
        bridge_writes = Signal()
        m.d.comb += [self.mem.ready.eq(~busy), bridge_writes.eq(controller.w_take & controller.w_tag[0])]
        with m.If(asking & controller.i_ready):
            m.d.sync += [asking.eq(0), busy.eq(write)]
        with m.If(bridge_writes):
            m.d.sync += busy.eq(0)
        with m.If(self.mem.valid & self.mem.ready):
            m.d.sync += [
                busy.eq(1), asking.eq(1), write.eq(self.mem.write), data.eq(self.mem.wdata),
                strobe.eq(self.mem.strobe), pair.eq(self.mem.address[(PAIR_BYTES - 1).bit_length() :]),
            ]  # fmt: skip

        m.d.comb += [
            controller.i_valid.eq(asking | (front.o_valid & ~front_reset)),
            front.o_ready.eq(controller.i_ready & ~asking),
            controller.i_write.eq(Mux(asking, write, front.o_write)),
            controller.i_pair.eq(Mux(asking, pair, front.o_pair)),
            controller.i_count.eq(Mux(asking, 0, front.o_count)),
            controller.i_tag.eq(Mux(asking, 1, Cat(C(0, 1), front.o_tag))),
            front.w_take.eq(controller.w_take & ~controller.w_tag[0]),
            front.w_last.eq(controller.w_last),
            front.w_tag.eq(controller.w_tag[1:]),
            front.r_valid.eq(controller.r_valid & ~controller.r_tag[0]),
            front.r_data.eq(controller.r_data),
            front.r_tag.eq(controller.r_tag[1:]),
            front.r_last.eq(controller.r_last),
            controller.w_data.eq(Mux(controller.w_tag[0], data, front.w_data)),
            controller.w_mask.eq(Mux(controller.w_tag[0], ~strobe, front.w_mask)),
            self.mem.rvalid.eq(controller.r_valid & controller.r_tag[0]),
            self.mem.rdata.eq(controller.r_data),
        ]
        return m
