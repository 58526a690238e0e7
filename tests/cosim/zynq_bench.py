"""cocotb side of the Zynq tests: the NPU behind its AXI3 adaptors, an AXI master on the register port, memory on the HP
port. The tests of the bare NPU run through the adaptors as well."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge
from cocotbext.axi import AxiBurstType, AxiBus, AxiMaster, AxiRam, AxiResp, AxiSlave

from tests.cosim import npu_bench
from tests.cosim.npu_bench import MEMORY_BYTES, Bench, SlowMemory, config_from_environment
from tilewright.fpga.zynq.axi3 import MAX_BEATS
from tilewright.isa.config import NpuConfig
from tilewright.isa.registers import REGISTER, REGISTERS

BASE, SIZE = 0x43C0_0000, 4096


class ZynqBench(Bench):
    """A `Bench` with the ports of `ZynqSystem`."""

    def __init__(self, dut: Any, config: NpuConfig, memory: SlowMemory | None = None) -> None:
        self.dut, self.config = dut, config
        self.registers = AxiMaster(AxiBus.from_prefix(dut, "gp"), dut.clk, dut.rst, max_burst_len=MAX_BEATS)
        bus = AxiBus.from_prefix(dut, "hp")
        if memory is None:
            self.ram = AxiRam(bus, dut.clk, dut.rst, size=MEMORY_BYTES)
        else:
            self.ram = AxiSlave(bus, dut.clk, dut.rst, target=memory)
        self.bursts = {"ar": 0, "aw": 0}  # of 16 beats
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        """Counts full bursts; write data ends its burst after 16 beats at most, and carries the only ID."""
        dut, beats = self.dut, 0
        while True:
            await RisingEdge(dut.clk)
            await ReadOnly()
            if dut.rst.value:
                continue
            for channel in self.bursts:
                if getattr(dut, f"hp_{channel}valid").value and getattr(dut, f"hp_{channel}ready").value:
                    assert int(getattr(dut, f"hp_{channel}burst").value) == AxiBurstType.INCR
                    assert int(getattr(dut, f"hp_{channel}size").value) == 3
                    self.bursts[channel] += int(getattr(dut, f"hp_{channel}len").value) == MAX_BEATS - 1
            if dut.hp_wvalid.value and dut.hp_wready.value:
                beats += 1
                assert beats <= MAX_BEATS and int(dut.hp_wid.value) == 0
                beats = 0 if dut.hp_wlast.value else beats

    async def write(self, name: str, value: int) -> None:
        await self.registers.write_dword(BASE + REGISTER[name].offset, value)

    async def read(self, name: str) -> int:
        return await self.registers.read_dword(BASE + REGISTER[name].offset)


npu_bench.Bench = ZynqBench  # what the tests of the bare NPU start
random_programs = npu_bench.random_programs
boxes_at_any_address = npu_bench.boxes_at_any_address
error_responses = npu_bench.error_responses


@cocotb.test()
async def long_bursts_are_split(dut: Any) -> None:
    """The NPU's bursts of 64 beats arrive as bursts of 16."""
    config = config_from_environment()
    assert config.burst_beats > MAX_BEATS
    rng = random.Random(7)
    bench = await ZynqBench.start(dut, config)
    ops = [
        npu_bench.op("LOAD", region=1, count=4096 // config.block_in, signal0=1),
        npu_bench.op("STORE", region=2, count=4096 // config.block_in, wait0=1),
        npu_bench.op("END"),
    ]
    data = rng.randbytes(4096)
    bench.ram.write(0, npu_bench.to_bytes(ops))
    bench.ram.write(npu_bench.REGION_BYTES, data)
    await bench.set_regions(npu_bench.regions_at(0))
    bench.pause(rng, 20)
    assert await bench.run(len(ops)) == 2
    assert bench.ram.read(2 * npu_bench.REGION_BYTES, 4096) == data
    assert isinstance(bench, ZynqBench) and bench.bursts == {"ar": 32, "aw": 32}


@cocotb.test()
async def registers_by_bursts(dut: Any) -> None:
    """Bursts of any length and ID, fixed bursts, narrow reads: each beat is its register."""
    rng = random.Random(8)
    bench = await ZynqBench.start(dut, config_from_environment())
    master = bench.registers
    writable = [r.offset for r in REGISTERS if r.access == "RW" and r.name.startswith("REGION")]
    first, count = min(writable), len(writable)
    assert writable == list(range(first, first + 4 * count, 4))
    for channel in (master.write_if.b_channel, master.read_if.r_channel, master.write_if.w_channel):
        channel.set_pause_generator(rng.random() < 0.4 for _ in iter(int, 1))
    expected = [0] * count
    for _ in range(12):
        start = rng.randrange(count)
        words = [rng.getrandbits(32) for _ in range(rng.randint(1, count - start))]
        expected[start : start + len(words)] = words
        data = b"".join(w.to_bytes(4, "little") for w in words)
        await master.write(BASE + first + 4 * start, data, awid=rng.randrange(1 << 12))
        start = rng.randrange(count)
        length = rng.randint(1, count - start)
        found = await master.read(BASE + first + 4 * start, 4 * length, arid=rng.randrange(1 << 12))
        assert found.resp == AxiResp.OKAY
        assert found.data == b"".join(w.to_bytes(4, "little") for w in expected[start : start + length])
    for _ in range(8):  # bytes and halves
        start, length = rng.randrange(4 * count - 8), rng.randint(1, 8)
        image = b"".join(w.to_bytes(4, "little") for w in expected)
        found = await master.read(BASE + first + start, length, size=rng.randrange(3))
        assert found.data == image[start : start + length]
    fixed = [rng.getrandbits(32) for _ in range(5)]
    await master.write(BASE + first, b"".join(w.to_bytes(4, "little") for w in fixed), burst=AxiBurstType.FIXED)
    assert await master.read_dword(BASE + first) == fixed[-1]
    assert await master.read_dword(BASE + first + 4) == expected[1]


@cocotb.test()
async def refused_accesses(dut: Any) -> None:
    """Accesses that registers cannot serve are errors and change nothing; the next access works."""
    bench = await ZynqBench.start(dut, config_from_environment())
    master = bench.registers
    watchdog = BASE + REGISTER["WATCHDOG"].offset
    await bench.write("WATCHDOG", 0x12345678)
    for address in (BASE - 4, BASE + SIZE, BASE + 0x1000_0000):
        assert (await master.write(address, bytes(8))).resp == AxiResp.DECERR
        assert (await master.read(address, 40)).resp == AxiResp.DECERR
    assert (await master.write(watchdog + 1, b"\xff")).resp == AxiResp.SLVERR
    assert (await master.write(watchdog, b"\xff\xff")).resp == AxiResp.SLVERR
    assert (await master.write(watchdog, bytes(4), size=1)).resp == AxiResp.SLVERR
    assert (await master.write(watchdog, bytes(16), burst=AxiBurstType.WRAP)).resp == AxiResp.SLVERR
    assert (await master.read(watchdog, 16, burst=AxiBurstType.WRAP)).resp == AxiResp.SLVERR
    assert await bench.read("WATCHDOG") == 0x12345678
    await bench.write("WATCHDOG", 5)
    assert await bench.read("WATCHDOG") == 5
