"""The front end of an engine: between its queue and its core."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import EngineControl, Take
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import engine_of, header, instructions_of, is_instruction, one_hot
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BITS
from tilewright.isa.instructions import Engine, queue_of


class FrontEnd(wiring.Component):
    """Takes one queue entry per cycle: configuring instructions at once, run instructions when they have their
    semaphores and the core is ready.

    Latency: 0 cycles from queue head to `configure`; 1 cycle to `start`, whose semaphores are taken in the cycle before
    at the latest, while the core is still at work; the core makes its first step in the cycle after `start`.

    Parameters:
        config: number of semaphores.
        engine: whose instructions it takes; the queue may also hold those of another.

    Ports:
        entry_valid, entry_ready, entry_word, entry_pc, entry_marks: head of the queue; of its `marks` a register.
        mine: there is one, of this engine.
        entry_load, entry_next: the head becomes `entry_next` at the end of this cycle.
        engine: to its core, which is ready when idle or in its last step (and has room for another instruction).
        semaphores: asks for those of the head.
        was_blocked: in the cycle before the head was a run instruction held back by a semaphore.  waiting: and the core
            was ready.  lacked0: by `wait0`.
        halt: start nothing. What the queue and the semaphores do then does not matter any more.

    Probes:
        held: the head has its semaphores.
    """

    def __init__(self, config: NpuConfig, engine: Engine) -> None:
        self.kind = engine
        self.shared = any(queue_of(e, config) == queue_of(engine, config) for e in Engine if e != engine)
        self.size = config.semaphores + 1
        self.configuring = [i.name for i in instructions_of(engine, configures=True)]
        super().__init__(
            {
                "entry_valid": In(1),
                "entry_ready": Out(1),
                "mine": Out(1),
                "entry_word": In(INSTRUCTION_BITS),
                "entry_pc": In(pc_bits(config)),
                "entry_marks": In(2 + len(self.configuring)),
                "entry_load": In(1),
                "entry_next": In(INSTRUCTION_BITS),
                "engine": Out(EngineControl(config, len(self.configuring))),
                "semaphores": Out(Take(config.semaphores)),
                "was_blocked": Out(1),
                "lacked0": Out(1),
                "waiting": Out(1),
                "halt": In(1),
            }
        )

    def marks(self, word: Value) -> Value:
        """Predecodes an instruction for `entry_marks`: it is of this engine; it configures; one-hot, which of
        `configuring` it is."""
        which = Cat(is_instruction(word, name) for name in self.configuring)
        return Cat(engine_of(word) == self.kind if self.shared else C(1, 1), which.any(), which)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        engine, semaphores = self.engine, self.semaphores
        is_mine, configures, which = Signal(), Signal(), Signal(len(self.configuring))
        m.d.comb += [Cat(is_mine, configures, which).eq(self.entry_marks), self.mine.eq(self.entry_valid & is_mine)]
        # The semaphores it waits for are decoded on its way into the queue's register: from a block RAM, so of their
        # numbers only bits that legal ones have.
        numbers = (self.size - 1).bit_length()
        with m.If(self.entry_load):
            m.d.sync += [
                semaphores.wait0.eq(one_hot(header(self.entry_next, "wait0")[:numbers], self.size)),
                semaphores.wait1.eq(one_hot(header(self.entry_next, "wait1")[:numbers], self.size)),
            ]
        held = Signal()  # the head has its semaphores
        was_ready, pops = Signal(), Signal()
        m.d.comb += [
            engine.configure.eq(which & self.mine.replicate(len(which))),
            semaphores.want.eq(self.mine & ~configures & ~held),
            pops.eq(held & engine.ready),
            engine.start.eq(pops & ~self.halt),
            self.waiting.eq(self.was_blocked & was_ready),
            engine.word.eq(self.entry_word),
            engine.pc.eq(self.entry_pc),
            engine.halt.eq(self.halt),
            self.entry_ready.eq((self.mine & configures) | pops),
        ]
        m.d.sync += [
            self.was_blocked.eq(semaphores.want & ~semaphores.grant),
            was_ready.eq(engine.ready),
            self.lacked0.eq(semaphores.lacks0),
        ]
        with m.If(pops):
            m.d.sync += held.eq(0)
        with m.Elif(semaphores.grant):
            m.d.sync += held.eq(1)
        declare_probes(self, held=held)
        return m
