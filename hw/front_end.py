"""The front end of an engine: between its queue and its core."""

from __future__ import annotations

from amaranth.hdl import C, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.ports import PC_BITS
from hw.semaphores import SEMAPHORE_BITS
from hw.table import header, instructions_of, is_instruction
from isa.instructions import INSTRUCTION_BITS, Engine


class FrontEnd(wiring.Component):
    """Takes one queue entry per cycle: configuring instructions at once, run instructions when the core is ready and
    the semaphores are there.

    Latency: 0 cycles from queue head to `configure` or `start`; the core makes its first step in the next cycle.

    Parameters:
        engine: whose instructions these are.

    Ports:
        entry_valid, entry_ready, entry_word, entry_pc: head of the queue.
        core_ready: core is idle or makes its last step in this cycle (and has room for another instruction).
        want, wait0, wait1, grant: to the semaphores.
        configure: `entry_word` is a configuring instruction, to be written at the end of this cycle.
        start: `entry_word` is a run instruction the core takes at the end of this cycle.
        waiting: a run instruction is held back by a semaphore in this cycle.
        halt: stop taking entries.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        super().__init__(
            {
                "entry_valid": In(1),
                "entry_ready": Out(1),
                "entry_word": In(INSTRUCTION_BITS),
                "entry_pc": In(PC_BITS),
                "core_ready": In(1),
                "want": Out(1),
                "wait0": Out(SEMAPHORE_BITS),
                "wait1": Out(SEMAPHORE_BITS),
                "grant": In(1),
                "configure": Out(1),
                "start": Out(1),
                "waiting": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        configuring = [i.name for i in instructions_of(self.engine, configures=True)]
        is_config = is_instruction(self.entry_word, *configuring) if configuring else C(0)
        valid = self.entry_valid & ~self.halt
        m.d.comb += [
            self.wait0.eq(header(self.entry_word, "wait0")),
            self.wait1.eq(header(self.entry_word, "wait1")),
            self.configure.eq(valid & is_config),
            self.want.eq(valid & ~is_config & self.core_ready),
            self.start.eq(self.grant),
            self.waiting.eq(self.want & ~self.grant),
            self.entry_ready.eq(self.configure | self.start),
        ]
        return m
