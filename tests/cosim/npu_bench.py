"""cocotb side of the whole-NPU tests: the RTL between AxiRam and an AXI4-Lite master."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from isa.config import NpuConfig
from isa.device import Region
from isa.encoding import op, to_bytes
from isa.registers import REGISTER
from simulator.functional import FunctionalDevice
from tests.common.program_generator import GeneratedProgram, generate

MEMORY_BYTES = 1 << 18


class Bench:
    """One NPU with its memory. `await Bench.start(dut, config)`."""

    def __init__(self, dut: Any, config: NpuConfig) -> None:
        self.dut, self.config = dut, config
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil"), dut.clk, dut.rst)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "axi"), dut.clk, dut.rst, size=MEMORY_BYTES)

    @classmethod
    async def start(cls, dut: Any, config: NpuConfig) -> Bench:
        cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
        dut.rst.value = 1
        bench = cls(dut, config)
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        await ClockCycles(dut.clk, 2)
        return bench

    def pause(self, rng: random.Random, percent: int) -> None:
        """Random back-pressure on every AXI channel."""

        def pattern() -> Any:
            seed = rng.getrandbits(32)
            local = random.Random(seed)
            return (local.randrange(100) < percent for _ in itertools.count())

        write, read = self.ram.write_if, self.ram.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.set_pause_generator(pattern())

    async def write(self, name: str, value: int) -> None:
        await self.registers.write_dword(REGISTER[name].offset, value)

    async def read(self, name: str) -> int:
        return await self.registers.read_dword(REGISTER[name].offset)

    async def set_regions(self, regions: Sequence[Region]) -> None:
        for i, region in enumerate(regions):
            await self.write(f"REGION{i}_BASE_LO", region.base & 0xFFFFFFFF)
            await self.write(f"REGION{i}_SIZE", region.size)
            await self.write(f"REGION{i}_FLAGS", region.read | region.write << 1)

    async def run(self, length: int, *, offset: int = 0, timeout: int = 2_000_000, watchdog: int = 20_000) -> int:
        """Runs the program of region 0; returns the final STATUS."""
        await self.begin(length, offset=offset, timeout=timeout, watchdog=watchdog)
        while not self.dut.irq.value:
            await RisingEdge(self.dut.clk)
        await self.write("IRQ_STATUS", 3)
        return await self.read("STATUS")

    async def begin(self, length: int, *, offset: int = 0, timeout: int = 0, watchdog: int = 0) -> None:
        await self.write("PROGRAM_REGION", 0)
        await self.write("PROGRAM_OFFSET", offset)
        await self.write("PROGRAM_LENGTH", length)
        await self.write("WATCHDOG", watchdog)
        await self.write("TIMEOUT", timeout)
        await self.write("IRQ_ENABLE", 3)
        await self.write("CONTROL", 1)

    async def run_program(self, program: GeneratedProgram, base: int) -> tuple[int, np.ndarray]:
        """Installs and runs; returns STATUS and the memory of the program afterwards."""
        self.ram.write(base, program.memory.tobytes())
        await self.set_regions([Region(base + w.base, w.size, w.read, w.write) for w in program.windows])
        status = await self.run(len(program.ops))
        return status, np.frombuffer(self.ram.read(base, program.memory.size), np.uint8)

    async def error(self) -> str:
        return ", ".join([f"{n} {await self.read(n):#x}" for n in ("ERROR_CODE", "ERROR_PC", "ERROR_ADDRESS_LO")])


def config_from_environment() -> NpuConfig:
    return NpuConfig.from_dict(__import__("json").loads(os.environ["CONFIG"]))


@cocotb.test()
async def random_programs(dut: Any) -> None:
    """Random race-free programs leave the same memory as in the functional simulator."""
    config = config_from_environment()
    bench = await Bench.start(dut, config)
    reference = FunctionalDevice(config, "reference")
    rng = random.Random(1)
    first, count = int(os.environ.get("FIRST", 0)), int(os.environ.get("COUNT", 5))
    for seed in range(first, first + count):
        program = generate(seed, config)
        reference.free_all()
        expected = program.run(reference)
        if seed % 2:
            bench.pause(rng, rng.choice((10, 40, 70)))
        status, memory = await bench.run_program(program, 4096)
        assert status == 2, f"seed {seed}: STATUS {status:#x}, {await bench.error()}"
        wrong = np.flatnonzero(memory != expected)
        assert not wrong.size, f"seed {seed}: {wrong.size} bytes differ, first at {wrong[:8]}"
        cocotb.log.info(f"seed {seed}: {await bench.read('CYCLES_LO')} cycles, {await bench.read('MACS_LO')} steps")


@cocotb.test()
async def soft_reset(dut: Any) -> None:
    """A soft reset in the middle of a run drains the bus; the next program runs as after power-up."""
    config = config_from_environment()
    bench = await Bench.start(dut, config)
    rng = random.Random(2)
    bench.pause(rng, 30)
    rows = 64
    size = rows * config.block_in
    ops = [
        op("LOAD", region=1, offset=5, row=3, count=rows, signal0=1),
        op("STORE", region=2, offset=2, row=3, count=rows, wait0=1),
        op("END"),
    ]
    busy = generate(3, config)
    for delay in (20, 60, 150, 400, 900):
        bench.ram.write(4096, busy.memory.tobytes())
        await bench.set_regions([Region(4096 + w.base, w.size, w.read, w.write) for w in busy.windows])
        await bench.begin(len(busy.ops))
        await ClockCycles(dut.clk, delay)
        await bench.write("CONTROL", 2)
        while await bench.read("STATUS"):
            pass
        data = rng.randbytes(size)
        bench.ram.write(0, to_bytes(ops))
        bench.ram.write(4096 + 5, data)
        regions = [Region(0, 4096, True, False), Region(4096, 8192, True, False), Region(16384, 8192, False, True)]
        await bench.set_regions(regions)
        status = await bench.run(len(ops))
        assert status == 2, f"after {delay} cycles: STATUS {status:#x}, {await bench.error()}"
        assert bench.ram.read(16384 + 2, size) == data
