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
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiSlave

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine
from tilewright.isa.registers import REGISTER
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.generator import GeneratedProgram, generate

MEMORY_BYTES = 1 << 18


class SlowMemory:
    """The memory behind an `AxiSlave`: now and then it takes some cycles, and it refuses accesses to `bad`."""

    def __init__(self, clock: Any, rng: random.Random) -> None:
        self.data = bytearray(MEMORY_BYTES)
        self.bad = range(0)
        self._clock, self._rng = clock, rng

    async def _serve(self, address: int, length: int) -> None:
        if self._rng.random() < 0.03:
            await ClockCycles(self._clock, self._rng.randint(1, 40))
        if max(address, self.bad.start) < min(address + length, self.bad.stop):
            raise ValueError("bad")

    async def read(self, address: int, length: int) -> bytes:
        await self._serve(address, length)
        return bytes(self.data[address : address + length])

    async def write(self, address: int, data: bytes) -> None:
        await self._serve(address, len(data))
        self.data[address : address + len(data)] = data


class Bench:
    """One NPU with its memory, an AxiRam or `memory` behind an AxiSlave (both refuse bursts that cross 4 KiB).
    `await Bench.start(dut, config)`."""

    def __init__(self, dut: Any, config: NpuConfig, memory: SlowMemory | None = None) -> None:
        self.dut, self.config = dut, config
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil"), dut.clk, dut.rst)
        bus = AxiBus.from_prefix(dut, "axi")
        if memory is None:
            self.ram = AxiRam(bus, dut.clk, dut.rst, size=MEMORY_BYTES)
        else:
            self.ram = AxiSlave(bus, dut.clk, dut.rst, target=memory)

    @classmethod
    async def start(cls, dut: Any, config: NpuConfig, memory: SlowMemory | None = None) -> Bench:
        cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
        dut.rst.value = 1
        bench = cls(dut, config, memory)
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


REGION_BYTES = 1 << 14


def transfer(rng: random.Random, config: NpuConfig, name: str, region: int, waits: dict[str, int]) -> list[Op]:
    """A LOAD or STORE of a random box at any byte, its runs across a 4 KiB boundary more often than not."""
    rows = rng.choice([1, rng.randint(1, 9), rng.randint(1, 1500 // config.block_in)])
    counts = [rng.randint(1, 4), rng.randint(1, 2)]
    size = rows * config.block_in
    strides = [rng.randint(-1500, 1500) for _ in counts]
    offsets = [y * strides[0] + z * strides[1] for y in range(counts[0]) for z in range(counts[1])]
    wanted = 4096 * rng.randint(1, 3) - rng.randint(0, min(size, 300))
    offset = min(max(wanted, -min(offsets)), REGION_BYTES - size - max(offsets))
    row_strides = [rng.randint(1, 40), rng.randint(40, 90)]
    dims = [
        op(f"{name}_DIM", level=k, count=counts[k], mem_stride=strides[k], row_stride=row_strides[k]) for k in range(2)
    ]
    return [*dims, op(name, region=region, offset=offset, row=rng.randint(0, 50), count=rows, **waits)]


def transfers(rng: random.Random, config: NpuConfig, pairs: int) -> list[Op]:
    """LOADs from region 1, each followed by a STORE to region 2 that waits for it and the next one for that. The first
    fills all rows they use: ACT keeps what runs before left there."""
    ops = [op("LOAD", region=1, count=700)]
    for n in range(pairs):
        ops += transfer(rng, config, "LOAD", 1, {"wait0": 2 if n else 0, "signal0": 1})
        ops += transfer(rng, config, "STORE", 2, {"wait0": 1, "signal0": 2})
    return [*ops, op("END")]


def regions_at(base: int) -> list[Region]:
    """Program, source and destination of `transfers`."""
    return [Region(base + i * REGION_BYTES, REGION_BYTES, i < 2, i == 2) for i in range(3)]


@cocotb.test()
async def boxes_at_any_address(dut: Any) -> None:
    """LOAD and STORE at any byte and across 4 KiB, with random latencies and back-pressure on every channel."""
    config = config_from_environment()
    rng = random.Random(4)
    memory = SlowMemory(dut.clk, rng)
    bench = await Bench.start(dut, config, memory)
    reference = FunctionalDevice(config, "reference")
    for _ in range(int(os.environ.get("ROUNDS", 5))):
        ops = transfers(rng, config, 3)
        program = to_bytes(ops)
        image = bytearray(rng.randbytes(3 * REGION_BYTES))
        image[: len(program)] = program
        reference.free_all()
        base = reference.allocate(len(image))
        reference.write(base, bytes(image))
        reference.run(regions_at(base), 0, 0, len(ops))
        memory.data[4096 : 4096 + len(image)] = image
        bench.pause(rng, rng.choice((0, 30, 60)))
        await bench.set_regions(regions_at(4096))
        status = await bench.run(len(ops))
        assert status == 2, f"STATUS {status:#x}, {await bench.error()}"
        found = np.frombuffer(bytes(memory.data[4096 : 4096 + len(image)]), np.uint8)
        wrong = np.flatnonzero(found != reference.read(base, len(image)))
        assert not wrong.size, f"{wrong.size} bytes differ, first at {wrong[:8]}"


@cocotb.test()
async def error_responses(dut: Any) -> None:
    """SLVERR stops the machine with the beat (reads) or burst (writes) it came for; the next program runs."""
    config = config_from_environment()
    rng = random.Random(5)
    memory = SlowMemory(dut.clk, rng)
    bench = await Bench.start(dut, config, memory)
    bench.pause(rng, 25)
    bus, rows = config.bus_bytes, 600 // config.block_in
    size = rows * config.block_in
    longest = config.burst_beats * bus
    for engine in (Engine.LOAD, Engine.STORE) * 3 + (Engine.FETCH,):
        offset = 4096 - rng.randint(0, size)
        spot = offset + rng.randrange(size)  # within its region
        region = {Engine.FETCH: 0, Engine.LOAD: 1, Engine.STORE: 2}[engine]
        bad = regions_at(4096)[region].base + (16 * 3 if engine == Engine.FETCH else spot)
        ops = [
            op("GEMM_SYNC"),
            op("LOAD", region=1, offset=offset, row=7, count=rows, signal0=1),
            op("STORE", region=2, offset=offset, row=7, count=rows, wait0=1),
            op("VECTOR_SYNC"),
            op("END"),
        ]
        image = bytearray(rng.randbytes(3 * REGION_BYTES))
        image[: 16 * len(ops)] = to_bytes(ops)
        memory.data[4096 : 4096 + len(image)] = image
        await bench.set_regions(regions_at(4096))
        memory.bad = range(bad, bad + 1)
        await bench.run(len(ops))
        pc, code = {Engine.FETCH: (3, ErrorCode.BUS_READ), Engine.LOAD: (1, ErrorCode.BUS_READ)}.get(
            engine, (2, ErrorCode.BUS_WRITE)
        )
        address = bad // bus * bus
        if engine == Engine.STORE:  # the burst: from the start of the run or the last multiple of the longest
            address = max(regions_at(4096)[2].base + offset // bus * bus, bad // longest * longest)
        found = await bench.read("ERROR_CODE"), await bench.read("ERROR_PC"), await bench.read("ERROR_ADDRESS_LO")
        assert found[0] & 0xFF == code and found[1] == pc, (engine, found)
        assert engine == Engine.FETCH or found[2] == address, (engine, found, hex(address))
        untouched = memory.data[4096 : 4096 + 2 * REGION_BYTES]
        assert untouched == image[: 2 * REGION_BYTES]
        memory.bad = range(0)
        await bench.write("CONTROL", 2)
        while await bench.read("STATUS"):
            pass
        assert await bench.run(len(ops)) == 2
        at = regions_at(4096)[2].base + offset
        assert memory.data[at : at + size] == image[REGION_BYTES + offset : REGION_BYTES + offset + size]
