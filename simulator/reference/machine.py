"""The order of the executable definition: queues, semaphores and FETCH.

Every engine takes its instructions in order from a queue of `queue_depth`; FETCH dispatches in order and
waits when the queue it needs is full. Of all instructions that could start, the oldest runs to its end before another
is looked at, and FETCH dispatches the next one only when none can start. So a program whose waits are satisfied in
program order runs in program order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.encoding import DecodeError, Op, decode
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine, queue_of
from tilewright.simulator.reference.chip import Chip
from tilewright.simulator.reference.gemm import Gemm
from tilewright.simulator.reference.load import Load
from tilewright.simulator.reference.row_unit import VectorWithRows
from tilewright.simulator.reference.store import Store
from tilewright.simulator.state import (
    Blocked,
    Explainer,
    ExternalMemory,
    Fault,
    RunCounts,
    Scratchpads,
    bus_beats,
    check_operands,
    read_program_checked,
)

Trace = Callable[[int, Op], None]


class ReferenceMachine:
    """One run of one program.

    Args:
        config: the NPU.
        scratchpads: read and written in place.
        memory: external memory through its regions.
        program_region, program_offset, program_length: the program; length in instructions, END included.
        timeout: steps any engine may make, 0 = no limit.
        trace: called with index and instruction after each instruction.
    """

    def __init__(
        self,
        config: NpuConfig,
        scratchpads: Scratchpads,
        memory: ExternalMemory,
        program_region: int,
        program_offset: int,
        program_length: int,
        timeout: int = 0,
        trace: Trace | None = None,
    ) -> None:
        self.config, self.memory = config, memory
        self.chip = Chip(config, scratchpads, memory, timeout)
        self.counts = self.chip.counts
        self.program = (program_region, program_offset, program_length)
        self.trace = trace
        self.explain = Explainer(memory, program_region, program_offset, scratchpads)
        self.semaphores = [0] * (config.semaphores + 1)
        self.queues: dict[Engine, deque[tuple[int, Op]]] = {e: deque() for e in Engine if e != Engine.FETCH}
        self.pc = 0
        self.ended = False
        self.engines = {
            Engine.LOAD: Load(self.chip),
            Engine.GEMM: Gemm(self.chip),
            Engine.VECTOR: VectorWithRows(self.chip),
            Engine.STORE: Store(self.chip),
        }

    def run(self) -> RunCounts:
        """Runs the program to completion. Raises `tilewright.isa.device.DeviceError`."""
        region, start, length = self.program
        try:
            read_program_checked(self.memory, region, start, length)
        except Fault as fault:
            raise self.explain.error(fault, Engine.FETCH, 0) from None
        while True:
            holder = self._oldest_ready()
            if holder is not None:
                pc, operation = self.queues[holder].popleft()
                self._guarded(operation.instruction.engine, pc, partial(self._start, operation))
                if self.trace:
                    self.trace(pc, operation)
            elif not self.ended and self._guarded(Engine.FETCH, self.pc, self._dispatch):
                continue
            elif self.ended and not any(self.queues.values()):
                break
            else:
                raise self.explain.deadlock(self._blocked(), self.semaphores)
        self.counts.instructions = self.pc
        self.counts.bytes_read += bus_beats(start, INSTRUCTION_BYTES * self.pc, self.config) * self.config.bus_bytes
        return self.counts

    def _guarded(self, engine: Engine, pc: int, action: Callable[[], bool]) -> bool:
        try:
            return action()
        except Fault as fault:
            raise self.explain.error(fault, engine, pc) from None

    def _oldest_ready(self) -> Engine | None:
        heads = {
            queue[0][0]: holder
            for holder, queue in self.queues.items()
            if queue and all(self.semaphores[s] for s in queue[0][1].waits)
        }
        return heads[min(heads)] if heads else None

    def _dispatch(self) -> bool:
        """FETCH: decodes and checks one instruction and passes it to its engine; False if that queue is full."""
        if self.pc == self.program[2]:
            raise Fault(ErrorCode.NO_END)
        try:
            operation = decode(self.explain.word(self.pc))
        except DecodeError as error:
            raise Fault(error.code) from None
        check_operands(operation, self.config)
        if operation.name == "END":
            self.ended = True
        else:
            queue = self.queues[queue_of(operation.instruction.engine, self.config)]
            if len(queue) == self.config.queue_depth:
                return False
            queue.append((self.pc, operation))
        self.pc += 1
        return True

    def _blocked(self) -> Blocked:
        blocked = Blocked({q[0][1].instruction.engine: q[0][0] for q in self.queues.values() if q})
        if not self.ended:
            engine = decode(self.explain.word(self.pc)).instruction.engine
            blocked.fetch = (queue_of(engine, self.config), self.pc)
        return blocked

    def _start(self, operation: Op) -> bool:
        """Starts an instruction: takes its semaphores, executes it, gives its semaphores."""
        for s in operation.waits:
            self.semaphores[s] -= 1
        getattr(self.engines[operation.instruction.engine], operation.name.lower())(operation)
        for s in operation.signals:
            if self.semaphores[s] == SEMAPHORE_LIMIT:
                raise Fault(ErrorCode.SEMAPHORE_OVERFLOW, s)
            self.semaphores[s] += 1
        return True


def run_reference(
    config: NpuConfig,
    scratchpads: Scratchpads,
    data: np.ndarray,
    regions: Sequence[Region],
    program: tuple[int, int, int],
    timeout: int = 0,
    trace: Trace | None = None,
) -> RunCounts:
    """Runs the program (region, offset, length) on `scratchpads` and memory `data`. Raises `DeviceError`."""
    machine = ReferenceMachine(config, scratchpads, ExternalMemory(data, regions), *program, timeout, trace)
    return machine.run()
