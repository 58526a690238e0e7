"""The common part of the four engines behind a front end: ports, configuring instructions, the retire queue."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import SEMAPHORE_BITS, Activity, EngineControl, Retire
from tilewright.hw.parts.queue import Queue
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import field, header, instructions_of
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME, Engine


class EngineShell(wiring.Component):
    """An engine as the core sees it.

    Parameters:
        engine: the engine.
        members: the ports of this engine.

    Ports:
        control: instructions from its front end.
        retire: complete instructions, to the semaphores.
        activity: to the counters, and for timelines.
    """

    def __init__(self, config: NpuConfig, engine: Engine, members: dict[str, Any]) -> None:
        self.config, self.engine = config, engine
        self.configuring = [i.name for i in instructions_of(engine, configures=True)]
        super().__init__(
            {
                "control": In(EngineControl(config, len(self.configuring))),
                "retire": Out(Retire(config)),
                "activity": Out(Activity()),
                **members,
            }
        )

    def run(self, name: str) -> Value:
        """Returns a field of the run instruction that has the engine's name."""
        return field(self.control.word, self.engine.name, name)

    def configures(self, instruction: str) -> Value:
        """Returns a bit: the word is this configuring instruction."""
        return self.control.configure[self.configuring.index(instruction)]

    def registers(self, m: Module, *instructions: str) -> dict[str, Signal]:
        """Makes registers with the fields of configuring instructions, by name."""
        made: dict[str, Signal] = {}
        for instruction in instructions:
            for f in BY_NAME[instruction].fields:
                made[f.name] = Signal(signed(f.bits) if f.signed else f.bits, name=f.name)
                with m.If(self.configures(instruction)):
                    m.d.sync += made[f.name].eq(field(self.control.word, instruction, f.name))
        return made

    def signals(self) -> Value:
        """Returns the semaphores the instruction signals, as `Retire` has them before `pc`."""
        return Cat(header(self.control.word, "signal0"), header(self.control.word, "signal1"))

    def retire_in_order(self, m: Module, pc: Value, end: Value, depth: int) -> None:
        """Drives `retire` and `running` of an engine whose instructions take a pipeline of at most `depth` of them.

        Parameters:
            pc: the instruction at work, from the cycle after its start on.
            end: the oldest one gives its signals in this cycle.
        """
        started, signals = Signal(), Signal(2 * SEMAPHORE_BITS, reset_less=True)
        m.d.sync += [started.eq(self.control.start), signals.eq(self.signals())]
        m.submodules.ends = ends = Queue(2 * SEMAPHORE_BITS + pc_bits(self.config), depth)
        m.d.comb += [
            ends.i_valid.eq(started),
            ends.i_payload.eq(Cat(signals, pc)),
            ends.o_ready.eq(self.retire.give),
            self.retire.give.eq(end),
            Cat(self.retire.signal0, self.retire.signal1, self.retire.pc).eq(ends.o_payload),
            self.activity.running.eq(started | ends.o_valid),
        ]
        unread(m, ends.i_ready)  # it is deep enough
