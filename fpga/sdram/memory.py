"""An SDRAM with the ports of `tilewright.fpga.memory`, on a clock of its own or on that of the NPU."""

from __future__ import annotations

from amaranth.hdl import C, Cat, ClockDomain, ClockSignal, DomainRenamer, Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.cdc import FFSynchronizer

from tilewright.fpga.memory import memory_members
from tilewright.fpga.sdram.axi import AxiSegments, depths
from tilewright.fpga.sdram.chip import SdramChip, pins
from tilewright.fpga.sdram.controller import PAIR_BYTES, SdramController
from tilewright.fpga.sdram.crossing import AxiCrossing
from tilewright.fpga.sdram.queues import AxiQueues
from tilewright.isa.config import NpuConfig

#: Clock domain of the chip's controller, where it has a clock of its own. It has a reset, in which it may be at any
#: time while `sync` is in reset.
MEMORY = "memory"
#: Parts with resets of their own: the queues' ends on the side of the bus, and the source of segments.
_NEAR, _FAR = "bus", "front"
#: Cycles of `sync` in which pointers that went back to 0 reach the other side before it acts upon them.
_SETTLE = 4


class SdramMemory(wiring.Component):
    """An SDRAM from address 0 on. The bridge goes first. Its ports are in `sync`, the chip is in `domain`: MEMORY,
    where nothing is assumed of the two clocks, or also `sync`.

    Latency: see docs/fpga.md; after power-on the chip takes SdramChip.start_us and some refreshes before it answers.

    Parameters:
        config: widths of the bus.
        chip: the memory.
        clock_hz: clock of the chip.
        shared: the chip is on the clock of `sync`: much smaller.

    Ports:
        axi, mem, bus_reset: see `tilewright.fpga.memory.memory_members`. After `bus_reset` the AXI4 slave takes nothing
            until everything under way has ended.
        sdram_*: see `tilewright.fpga.sdram.chip.pins`; in `domain`.

    Raises:
        ValueError: the chip does not work at this clock.
    """

    class State(enum.Enum):
        """States of a reset of the bus."""

        OPEN = 0
        ASK = 1  # until what asks for segments is in reset and the chip has done what was asked for
        CLEAR = 2  # the near ends go back to the start
        RELEASE = 3  # until it is in reset no more

    def __init__(self, config: NpuConfig, chip: SdramChip, clock_hz: int, *, shared: bool = False) -> None:
        self.config, self.chip, self.shared = config, chip, shared
        self.domain = "sync" if shared else MEMORY
        #: Bytes.
        self.size = chip.size
        #: Ports that lead to the pins of the board.
        self.pins = pins(chip)
        # Bit 0 of a tag: a segment of the bridge.
        self.controller = SdramController(chip, clock_hz, 1 + AxiSegments.TAG_BITS)
        super().__init__({**memory_members(config), **self.pins})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = DomainRenamer(self.domain)(self.controller)
        controller = self.controller
        for name, member in self.pins.items():
            inward = member.flow == wiring.In  # type: ignore[attr-defined]
            source, target = (self, controller) if inward else (controller, self)
            m.d.comb += getattr(target, name).eq(getattr(source, name))
        near_reset, far_reset = (Signal(init=1, name=name) for name in ("near_reset", "far_reset"))
        is_open = Signal()
        resets = ((_NEAR, "sync", near_reset), (_FAR, self.domain, far_reset))
        for name, clock, reset in resets[self.shared :]:
            domain = ClockDomain(name, local=True)
            m.domains += domain
            m.d.comb += [domain.clk.eq(ClockSignal(clock)), domain.rst.eq(reset)]
        crossing: AxiCrossing | AxiQueues
        if self.shared:
            crossing = AxiQueues(self.config, depths(self.config))
            m.submodules.crossing = DomainRenamer(_FAR)(crossing)
        else:
            m.submodules.crossing = crossing = AxiCrossing(self.config, depths(self.config), _NEAR, _FAR)
        front = AxiSegments(self.config, controller.pair_bits)
        m.submodules.front = DomainRenamer(_FAR)(front)
        wiring.connect(m, crossing.far, front.axi)
        for name in ("w_come", "r_left", "b_left"):
            m.d.comb += getattr(front, name).eq(getattr(crossing, name))
        for name in ("ar", "aw", "w", "r", "b"):
            source, target = getattr(self.axi, name), getattr(crossing.axi, name)
            if name in ("r", "b"):
                source, target = target, source
            m.d.comb += [target.valid.eq(source.valid & is_open), source.ready.eq(target.ready & is_open)]
            fields = [f for f in source.signature.members if f not in ("valid", "ready")]
            m.d.comb += [getattr(target, f).eq(getattr(source, f)) for f in fields]
        if self.shared:
            m.d.sync += far_reset.eq(self.bus_reset | (far_reset & ~controller.idle))
            m.d.comb += is_open.eq(~far_reset)
        else:
            self._reset_the_bus(m, near_reset, far_reset, is_open)

        asking, write, pair, data, strobe = self._bridge(m)
        m.d.comb += [
            controller.i_valid.eq(asking | (front.o_valid & ~far_reset)),
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
        ]
        return m

    def _reset_the_bus(self, m: Module, near_reset: Signal, far_reset: Signal, is_open: Signal) -> None:
        """Resets both sides of the queues. The far side comes first: it must never see a pointer that went back while
        it acts upon it. Then comes the near side, and only then the far side goes on.
        """
        s = self.State
        state = Signal(s, init=s.ASK)
        asked = Signal(init=1, name="reset_asked")
        asked_there, done, done_here = (Signal(name=f"reset_{name}") for name in ("asked_there", "done", "done_here"))
        m.submodules.asked = FFSynchronizer(asked, asked_there, o_domain=MEMORY, init=1)
        m.submodules.done = FFSynchronizer(done, done_here)
        m.d[MEMORY] += [
            far_reset.eq(asked_there | (far_reset & ~self.controller.idle)),
            # Until it is asked no more: the bridge goes on meanwhile, and one that comes and goes would be taken for
            # the answer to a reset that follows at once.
            done.eq(asked_there & far_reset & (self.controller.idle | done)),
        ]
        settle = Signal(range(_SETTLE))
        m.d.sync += [near_reset.eq(state == s.CLEAR), is_open.eq((state == s.OPEN) & ~self.bus_reset)]
        with m.Switch(state):
            with m.Case(s.OPEN):
                with m.If(self.bus_reset):
                    m.d.sync += [state.eq(s.ASK), asked.eq(1)]
            with m.Case(s.ASK):
                m.d.sync += settle.eq(_SETTLE - 1)
                with m.If(done_here):
                    m.d.sync += state.eq(s.CLEAR)
            with m.Case(s.CLEAR):
                m.d.sync += settle.eq(Mux(settle == 0, 0, settle - 1))
                with m.If((settle == 0) & ~self.bus_reset):
                    m.d.sync += [state.eq(s.RELEASE), asked.eq(0)]
            with m.Case(s.RELEASE):  # what was taken since then: nothing, so another reset changes nothing
                with m.If(~done_here):
                    m.d.sync += state.eq(s.OPEN)

    def _bridge(self, m: Module) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """Passes one request of the bridge at a time, announced and answered by a level that changes. It is `busy`
        until a write has taken its word, or the word read is here.

        Returns:
            The request in `domain`: that there is one, write, pair, data, bytes to write.
        """
        controller, mem = self.controller, self.mem
        request = {
            "write": (mem.write, Signal(name="write_here")),
            "pair": (mem.address[(PAIR_BYTES - 1).bit_length() :], Signal(controller.pair_bits, name="pair_here")),
            "data": (mem.wdata, Signal(8 * PAIR_BYTES, name="data_here")),
            "strobe": (mem.strobe, Signal(PAIR_BYTES, name="strobe_here")),
        }
        asked, asked_there = (Signal(name=f"mem_{name}") for name in ("asked", "asked_there"))
        answered, answered_here = (Signal(name=f"mem_{name}") for name in ("answered", "answered_here"))
        if self.shared:
            m.d.comb += [asked_there.eq(asked), answered_here.eq(answered)]
        else:
            m.submodules.bridge_asked = FFSynchronizer(asked, asked_there, o_domain=MEMORY)
            m.submodules.bridge_answered = FFSynchronizer(answered, answered_here)
        busy, ends = (Signal(name=f"mem_{name}") for name in ("busy", "ends"))
        word = Signal(8 * PAIR_BYTES)
        m.d.comb += [
            mem.ready.eq(~busy),
            ends.eq(busy & (answered_here == asked)),
            mem.rvalid.eq(ends & ~request["write"][1]),
            mem.rdata.eq(word),
        ]
        with m.If(ends):
            m.d.sync += busy.eq(0)
        with m.If(mem.valid & mem.ready):
            m.d.sync += [busy.eq(1), asked.eq(~asked), *[kept.eq(port) for port, kept in request.values()]]

        seen, asking = (Signal(name=f"mem_{name}") for name in ("seen", "asking"))
        there = {
            name: kept if self.shared else Signal.like(kept, name=f"{name}_there")
            for name, (_, kept) in request.items()
        }
        with m.If(asked_there != seen):
            m.d[self.domain] += [seen.eq(asked_there), asking.eq(1)]
            if not self.shared:
                m.d[self.domain] += [there[name].eq(kept) for name, (_, kept) in request.items()]
        with m.If(asking & controller.i_ready):
            m.d[self.domain] += asking.eq(0)
        with m.If((controller.w_take & controller.w_tag[0]) | (controller.r_valid & controller.r_tag[0])):
            m.d[self.domain] += [answered.eq(seen), word.eq(controller.r_data)]
        return asking, there["write"], there["pair"], there["data"], there["strobe"]
