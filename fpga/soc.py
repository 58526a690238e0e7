"""The SoC of small boards: NPU, memory, serial bridge, status LEDs."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.fpga.bridge.bridge import SerialBridge
from tilewright.fpga.memory import reached_bytes
from tilewright.hw.connections import unread
from tilewright.hw.host.reset import reset_by
from tilewright.hw.interfaces import flat_ports
from tilewright.hw.npu import Npu
from tilewright.isa.config import NpuConfig

LEDS = 4
#: Time in seconds that an LED stays on after its event.
LED_SECONDS = 0.05
#: Board identity of a SoC outside any board (simulation).
SIMULATION_ID = "SIMU"


def board_word(letters: str) -> int:
    """Four letters as a BOARD_ID word, the first in the low byte.

    Raises:
        ValueError: not four ASCII characters.
    """
    if len(letters) != 4 or not letters.isascii():
        raise ValueError(f"a board identity must be four ASCII characters, not {letters!r}")
    return int.from_bytes(letters.encode(), "little")


class Soc(wiring.Component):
    """NPU with its memory; a host reaches both over a serial line. Everything runs on clock domain `sync`.

    Parameters:
        config: configuration of the NPU.
        memory: component with the ports of `OnChipMemory` and `size` in bytes.
        clock_hz: clock of domain `sync`.
        baud: baud rate of the serial line.
        board_id: four letters the host reads.

    Ports:
        rx, tx: serial line.
        the `pins` of the memory.
        leds: 0 blinks once a second while the clock runs, 1 traffic on the serial line, 2 the NPU uses its memory,
            3 interrupt pending.
    """

    def __init__(
        self, config: NpuConfig, memory: Any, *, clock_hz: int, baud: int, board_id: str = SIMULATION_ID
    ) -> None:
        self.config, self.memory = config, memory
        self.clock_hz, self.baud, self.board_id = clock_hz, baud, board_word(board_id)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "leds": Out(LEDS), **memory.pins})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bridge = bridge = SerialBridge(self.clock_hz, self.baud)
        memory = self.memory
        npu = Npu(self.config)
        # The host's reset reaches the NPU and the bus between NPU and memory, which is in no other state then.
        reset = Signal(init=1)
        m.d.sync += reset.eq(bridge.npu_reset)
        m.submodules.npu = reset_by(m, npu, reset, "npu")
        m.submodules.memory = memory
        m.d.comb += [
            bridge.rx.eq(self.rx),
            self.tx.eq(bridge.tx),
            bridge.board_id.eq(self.board_id),
            bridge.memory_bytes.eq(reached_bytes(memory, self.config)),
            memory.bus_reset.eq(reset),
        ]
        wiring.connect(m, npu.axi, memory.axi)
        wiring.connect(m, bridge.axil, npu.axil)
        wiring.connect(m, bridge.mem, memory.mem)
        unread(m, *(port for _, _, port in flat_ports(npu.dbg)))  # no timelines on boards
        for name, member in memory.pins.items():
            source, target = (memory, self) if member.flow == Out else (self, memory)
            m.d.comb += getattr(target, name).eq(getattr(source, name))

        half_second = Signal(range(self.clock_hz // 2))
        alive = Signal()
        m.d.sync += half_second.eq(half_second + 1)
        with m.If(half_second == self.clock_hz // 2 - 1):
            m.d.sync += [half_second.eq(0), alive.eq(~alive)]
        shown: list[Signal] = []
        for name, event in (("line", ~self.rx | ~self.tx), ("memory", npu.axi.ar.valid | npu.axi.aw.valid)):
            seen = Signal(name=f"{name}_seen")
            left = Signal(range(max(2, int(self.clock_hz * LED_SECONDS))), name=f"{name}_left")
            m.d.sync += seen.eq(event)
            with m.If(seen):
                m.d.sync += left.eq(int(self.clock_hz * LED_SECONDS) - 1)
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
            shown.append(left)
        m.d.sync += self.leds.eq(Cat(alive, *[left != 0 for left in shown], npu.irq))
        return m
