"""Start, stop, error, soft reset, interrupts."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import ERROR_ADDRESS_BITS, CoreStatus
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine
from tilewright.isa.registers import REGISTER


class State(enum.Enum):
    IDLE = 0
    RUN = 1
    STOP = 2  # an error: the bus drains
    FAILED = 3  # until a soft reset
    RESET = 4  # a soft reset: the bus drains


class Control(wiring.Component):
    """The state of a run.

    The core is held in reset while there is no run (`hold`), START in cycle 0 lets it go; BUSY and CYCLES run from
    cycle 1, where `start` reaches FETCH. A run
    ends in the first cycle in which `finished` is 1. The first error ends it as well: from the next cycle on the core
    is halted, the bus drains, and the interrupt follows.

    Ports:
        start_write, reset_write, acknowledge: commands of the host (acknowledge: bits of IRQ_STATUS to clear).
        irq_enable, watchdog, timeout: registers.
        hold: resets the core.  start: begins the program.  halt: stops all engines.
        core: state of the core.
        status, irq_status, irq: to registers and pin.  code, engine, failed_pc, address: the recorded error.
        counting: this cycle belongs to the run.  clear: a run begins, or a reset is complete: counters become 0.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "start_write": In(1),
                "reset_write": In(1),
                "acknowledge": In(2),
                "irq_enable": In(2),
                "watchdog": In(32),
                "timeout": In(32),
                "hold": Out(1, init=1),
                "start": Out(1),
                "halt": Out(1, init=1),
                "core": In(CoreStatus(config)),
                "status": Out(32),
                "irq_status": Out(2),
                "irq": Out(1),
                "code": Out(8),
                "engine": Out(4),
                "failed_pc": Out(pc_bits(config)),
                "address": Out(ERROR_ADDRESS_BITS),
                "counting": Out(1),
                "clear": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(State)
        done = Signal()
        run = state == State.RUN
        quiet = Signal(33, init=2)  # 2 more than the cycles without progress, the cycle before this one left out
        progressed = self.core.progress | self.start
        cycles = Signal(32)  # of the run
        at_limit = Signal()  # `quiet` is one below the limit
        expired = run & at_limit & ~progressed
        at_timeout = Signal()
        late = run & at_timeout
        finish_irq, error_irq = Signal(), Signal()
        # The run ended in the cycle before by an error, the watchdog, the timeout. The details of an error arrive now;
        # those of a watchdog or timeout belong to that cycle and were kept.
        error_seen, watchdog_expired, timed_out = Signal(), Signal(), Signal(name="overdue")
        reported = self.core.waiting
        waiting, waiting_engine = Signal(), Signal.like(reported.engine, name="waiting_engine", reset_less=True)
        waiting_pc = Signal.like(reported.pc, name="waiting_pc", reset_less=True)
        waiting_id = Signal.like(reported.id, name="waiting_id", reset_less=True)
        pc = Signal.like(self.core.pc, name="kept_pc", reset_less=True)
        m.d.sync += [
            waiting.eq(reported.valid),
            waiting_engine.eq(reported.engine),
            waiting_pc.eq(reported.pc),
            waiting_id.eq(reported.id),
            pc.eq(self.core.pc),
        ]
        # In the first cycle of a run the core is still in reset, or shows what it did before.
        error, finished = self.core.error.error & ~self.start, self.core.finished & ~self.start
        m.d.comb += self.counting.eq(run | (state == State.STOP))
        m.d.sync += [
            error_seen.eq(0),
            watchdog_expired.eq(0),
            timed_out.eq(0),
            self.start.eq(0),
            at_limit.eq(Mux(progressed, self.watchdog == 1, quiet == self.watchdog)),
            at_timeout.eq(run & (self.timeout != 0) & (self.timeout == cycles)),
        ]

        with m.Switch(state):
            with m.Case(State.IDLE):
                with m.If(self.start_write):
                    m.d.comb += self.clear.eq(1)
                    m.d.sync += [state.eq(State.RUN), self.hold.eq(0), self.halt.eq(0)]
                    m.d.sync += [self.start.eq(1), done.eq(0), cycles.eq(1)]
            with m.Case(State.RUN):
                m.d.sync += [cycles.eq(cycles + 1), quiet.eq(Mux(progressed, 2, quiet + 1))]
                with m.If(error | expired | late):
                    m.d.sync += [state.eq(State.STOP), self.halt.eq(1)]
                with m.If(error):
                    m.d.sync += error_seen.eq(1)
                with m.Elif(expired):
                    m.d.sync += watchdog_expired.eq(1)
                with m.Elif(late):
                    m.d.sync += timed_out.eq(1)
                with m.Elif(finished):
                    m.d.comb += finish_irq.eq(1)
                    m.d.sync += [state.eq(State.IDLE), self.hold.eq(1), self.halt.eq(1), done.eq(1)]
            with m.Case(State.STOP):
                with m.If(error_seen):
                    m.d.sync += [
                        self.code.eq(self.core.error.code),
                        self.engine.eq(self.core.error.engine),
                        self.failed_pc.eq(self.core.error.pc),
                        self.address.eq(self.core.error.address),
                    ]
                with m.Elif(watchdog_expired):
                    m.d.sync += [
                        self.code.eq(ErrorCode.WATCHDOG),
                        self.engine.eq(Mux(waiting, waiting_engine, Engine.FETCH)),
                        self.failed_pc.eq(Mux(waiting, waiting_pc, pc)),
                        self.address.eq(Mux(waiting, waiting_id, 0)),
                    ]
                with m.Elif(timed_out):
                    m.d.sync += [
                        self.code.eq(ErrorCode.TIMEOUT),
                        self.engine.eq(Engine.FETCH),
                        self.failed_pc.eq(pc),
                        self.address.eq(0),
                    ]
                with m.If(self.core.bus_idle):
                    m.d.comb += error_irq.eq(1)
                    m.d.sync += state.eq(State.FAILED)
            with m.Case(State.RESET):
                with m.If(self.core.bus_idle):
                    m.d.comb += self.clear.eq(1)
                    m.d.sync += [state.eq(State.IDLE), self.hold.eq(1), done.eq(0)]
                    m.d.sync += [s.eq(0) for s in (self.code, self.engine, self.failed_pc, self.address)]
        with m.If(self.reset_write):
            m.d.sync += [state.eq(State.RESET), self.hold.eq(0), self.halt.eq(1), self.start.eq(0)]

        # Status and interrupts.
        bits = {
            "BUSY": (state != State.IDLE) & (state != State.FAILED),
            "DONE": done,
            "ERROR": state == State.FAILED,
            "RESETTING": state == State.RESET,
        }
        for b in REGISTER["STATUS"].bits:
            bits[b.name] = bits[b.name] << b.low
        m.d.comb += self.status.eq(reduce(or_, bits.values()))
        raised = {"DONE": finish_irq, "ERROR": error_irq}
        for b in REGISTER["IRQ_STATUS"].bits:
            with m.If(raised[b.name]):
                m.d.sync += self.irq_status[b.low].eq(1)
            with m.Elif(self.acknowledge[b.low]):
                m.d.sync += self.irq_status[b.low].eq(0)
        m.d.comb += self.irq.eq((self.irq_status & self.irq_enable).any())
        return m
