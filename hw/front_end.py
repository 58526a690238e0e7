"""The front end of an engine: between its queue and its core."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.interfaces import PC_BITS, EngineControl, Take
from hw.table import engine_of, header, instructions_of, one_hot
from isa.config import NpuConfig
from isa.instructions import BY_NAME, INSTRUCTION_BITS, Engine, queue_of


class FrontEnd(wiring.Component):
    """Takes one queue entry per cycle: configuring instructions at once, run instructions when they have their
    semaphores and the core is ready.

    Latency: 0 cycles from queue head to `configure`; 1 cycle to `start`, whose semaphores are taken in the cycle before
    at the latest, while the core is still at work; the core makes its first step in the cycle after `start`.

    Parameters:
        config: number of semaphores.
        engine: whose instructions it takes; the queue may also hold those of another.

    Ports:
        entry_valid, entry_ready, entry_word, entry_pc: head of the queue.  mine: there is one, of this engine.
        entry_load, entry_next: the head becomes `entry_next` at the end of this cycle.
        engine: to its core, which is ready when idle or in its last step (and has room for another instruction).
        semaphores: asks for those of the head.
        was_blocked: in the cycle before the head was a run instruction held back by a semaphore.  waiting: and the core
            was ready.  lacked0: by `wait0`.
        halt: start nothing. What the queue and the semaphores do then does not matter any more.
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
                "entry_pc": In(PC_BITS),
                "entry_load": In(1),
                "entry_next": In(INSTRUCTION_BITS),
                "engine": Out(EngineControl(len(self.configuring))),
                "semaphores": Out(Take(config.semaphores)),
                "was_blocked": Out(1),
                "lacked0": Out(1),
                "waiting": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        engine, semaphores = self.engine, self.semaphores
        # What the head is, decoded on its way into the queue's register: behind a block RAM, so from as few bits as tell
        # it, of which FETCH lets only legal ones through.
        configures, which = Signal(reset_less=True), Signal(len(self.configuring), reset_less=True)
        opcode = header(self.entry_next, "opcode")
        said = opcode if self.shared else opcode[:4]  # the rest is the engine

        def is_one(name: str) -> Value:
            return said == BY_NAME[name].opcode % (1 << len(said))

        numbers = (self.size - 1).bit_length()
        with m.If(self.entry_load):
            m.d.sync += [
                configures.eq(Cat(is_one(name) for name in self.configuring).any()),
                which.eq(Cat(is_one(name) for name in self.configuring)),
                semaphores.wait0.eq(one_hot(header(self.entry_next, "wait0")[:numbers], self.size)),
                semaphores.wait1.eq(one_hot(header(self.entry_next, "wait1")[:numbers], self.size)),
            ]
        m.d.comb += self.mine.eq(self.entry_valid)
        if self.shared:
            is_mine = Signal(reset_less=True)
            with m.If(self.entry_load):
                m.d.sync += is_mine.eq(engine_of(self.entry_next) == self.kind)
            m.d.comb += self.mine.eq(self.entry_valid & is_mine)
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
        return m
