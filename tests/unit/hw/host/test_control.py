"""The states of a run: start, end, errors, watchdog, timeout, soft reset, interrupts, cycle by cycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.common.rtl_bench import drive, simulate
from tilewright.hw.host.control import Control
from tilewright.isa.config import preset
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine
from tilewright.isa.registers import REGISTER

DONE_IRQ, ERROR_IRQ = (1 << bit.low for bit in REGISTER["IRQ_STATUS"].bits)


class Host:
    """The bench's side of a `Control` whose core does nothing by itself."""

    def __init__(self, dut: Control, ctx: Any) -> None:
        self.dut, self.ctx = dut, ctx

    def states(self) -> set[str]:
        """Bits of STATUS that are set."""
        status = self.ctx.get(self.dut.status)
        return {bit.name for bit in REGISTER["STATUS"].bits if status >> bit.low & 1}

    def get(self, *names: str) -> list[int]:
        """Values of outputs."""
        return [self.ctx.get(getattr(self.dut, name)) for name in names]

    async def pulse(self, port: Any, value: int = 1) -> None:
        """A cycle in which an input has a value, 0 after it."""
        self.ctx.set(port, value)
        await self.ctx.tick()
        self.ctx.set(port, 0)

    async def start(self) -> None:
        """START, up to the first cycle of the run."""
        await self.pulse(self.dut.start_write)

    async def fail(self, **report: int) -> None:
        """The core reports an error; its details come a cycle later."""
        await self.pulse(self.dut.core.error.error)
        drive(self.ctx, self.dut.core.error, **report)
        await self.ctx.tick()


def control(bench: Callable[[Host], Awaitable[None]], **registers: int) -> None:
    """Runs a bench on a control with registers set, and a bus that is idle."""
    dut = Control(preset("tiny"))

    async def run(ctx: Any) -> None:
        drive(ctx, dut, **({"watchdog": 1000, "timeout": 0, "irq_enable": 3} | registers))
        ctx.set(dut.core.bus_idle, 1)
        await bench(Host(dut, ctx))

    simulate(dut, run)


def test_a_run() -> None:
    """`clear` with START, `start` in the first cycle, the interrupt when the core has finished; then the next run."""

    async def bench(host: Host) -> None:
        assert host.states() == set() and host.get("hold", "halt", "counting") == [1, 1, 0]
        for _ in range(2):
            host.ctx.set(host.dut.start_write, 1)
            assert host.get("clear") == [1]
            await host.ctx.tick()
            host.ctx.set(host.dut.start_write, 0)
            assert host.states() == {"BUSY"} and host.get("start", "hold", "halt", "counting") == [1, 0, 0, 1]
            for _ in range(5):
                await host.ctx.tick()
                assert host.states() == {"BUSY"} and host.get("start", "irq", "counting") == [0, 0, 1]
            await host.pulse(host.dut.core.finished)
            assert host.states() == {"DONE"} and host.get("hold", "halt", "counting") == [1, 1, 0]
            assert host.get("irq", "irq_status") == [1, DONE_IRQ]
            await host.pulse(host.dut.acknowledge, DONE_IRQ)
            assert host.get("irq", "irq_status") == [0, 0]

    control(bench)


def test_what_the_core_did_before_does_not_count() -> None:
    """The core may still show an error or an end of the run before in the first cycle of a run."""

    async def bench(host: Host) -> None:
        host.ctx.set(host.dut.core.finished, 1)
        host.ctx.set(host.dut.core.error.error, 1)
        await host.start()
        host.ctx.set(host.dut.core.error.error, 1)
        await host.ctx.tick()
        host.ctx.set(host.dut.core.finished, 0)
        host.ctx.set(host.dut.core.error.error, 0)
        await host.ctx.tick()
        assert host.states() == {"BUSY"} and host.get("halt") == [0]

    control(bench)


def test_an_error_waits_for_the_bus() -> None:
    """The engines stop at once; ERROR and the interrupt come when nothing is in flight. START is not heard then."""

    async def bench(host: Host) -> None:
        await host.start()
        await host.ctx.tick()
        host.ctx.set(host.dut.core.bus_idle, 0)
        await host.fail(code=ErrorCode.WINDOW, engine=Engine.LOAD, pc=42, address=0x1234)
        for _ in range(3):
            assert host.states() == {"BUSY"} and host.get("halt", "irq", "counting") == [1, 0, 1]
            await host.ctx.tick()
        host.ctx.set(host.dut.core.bus_idle, 1)
        await host.ctx.tick()
        assert host.states() == {"ERROR"} and host.get("irq", "irq_status", "counting") == [1, ERROR_IRQ, 0]
        assert host.get("code", "engine", "failed_pc", "address") == [ErrorCode.WINDOW, Engine.LOAD, 42, 0x1234]
        await host.start()
        assert host.states() == {"ERROR"} and host.get("start") == [0]

    control(bench)


def test_soft_reset() -> None:
    """A soft reset waits for the bus, too, clears the error, and lets the next run begin."""

    async def bench(host: Host) -> None:
        await host.start()
        await host.ctx.tick()
        await host.fail(code=ErrorCode.CODE, engine=Engine.LOAD, pc=1, address=2)
        await host.ctx.tick()
        host.ctx.set(host.dut.core.bus_idle, 0)
        await host.pulse(host.dut.reset_write)
        for _ in range(3):
            assert host.states() == {"BUSY", "RESETTING"} and host.get("halt") == [1]
            await host.ctx.tick()
        host.ctx.set(host.dut.core.bus_idle, 1)
        assert host.get("clear") == [1]
        await host.ctx.tick()
        assert host.states() == set() and host.get("code", "engine", "failed_pc", "address") == [0, 0, 0, 0]
        await host.start()
        assert host.states() == {"BUSY"}

    control(bench)


def test_watchdog() -> None:
    """The watchdog counts cycles without progress, and names the engine that waits for a semaphore."""

    async def bench(host: Host) -> None:
        waiting = host.dut.core.waiting
        await host.start()
        for _ in range(30):  # progress in every tenth cycle is enough
            for _ in range(9):
                await host.ctx.tick()
            await host.pulse(host.dut.core.progress)
        assert host.states() == {"BUSY"} and host.get("halt") == [0]
        drive(host.ctx, waiting, valid=1, engine=Engine.GEMM, pc=17, id=5)
        cycles = 0
        while not host.get("halt")[0]:
            await host.ctx.tick()
            cycles += 1
        assert 18 <= cycles <= 22
        drive(host.ctx, waiting, valid=0, engine=0, pc=0, id=0)  # what counts is who waited then
        await host.ctx.tick()
        await host.ctx.tick()
        assert host.states() == {"ERROR"}
        assert host.get("code", "engine", "failed_pc", "address") == [ErrorCode.WATCHDOG, Engine.GEMM, 17, 5]

    control(bench, watchdog=20)


def test_timeout() -> None:
    """The timeout counts all cycles of a run, and names the next instruction."""

    async def bench(host: Host) -> None:
        host.ctx.set(host.dut.core.progress, 1)
        host.ctx.set(host.dut.core.pc, 99)
        await host.start()
        cycles = 0
        while not host.get("halt")[0]:
            await host.ctx.tick()
            cycles += 1
        assert 49 <= cycles <= 52
        await host.ctx.tick()
        await host.ctx.tick()
        assert host.states() == {"ERROR"}
        assert host.get("code", "engine", "failed_pc", "address") == [ErrorCode.TIMEOUT, Engine.FETCH, 99, 0]

    control(bench, timeout=50)


def test_interrupts_that_are_not_enabled() -> None:
    """Interrupts that are not enabled are noted in IRQ_STATUS, and not raised."""

    async def bench(host: Host) -> None:
        await host.start()
        await host.ctx.tick()
        await host.pulse(host.dut.core.finished)
        assert host.get("irq", "irq_status") == [0, DONE_IRQ]
        host.ctx.set(host.dut.irq_enable, DONE_IRQ)
        assert host.get("irq") == [1]

    control(bench, irq_enable=ERROR_IRQ)
