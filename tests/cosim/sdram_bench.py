"""cocotb side of the tests of `tilewright.fpga.sdram.memory`, besides those of memory_bench: the whole chip, resets,
speed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiMaster

from tests.cosim.memory_bench import MEMORY_RATIO, SIZE, check_chip, start

ROW = 1024  # bytes of a row
BUS_BYTES = int(os.environ["BUS_BYTES"])


async def ready(axi: AxiMaster) -> None:
    """The chip is initialised."""
    await with_timeout(axi.read(0, BUS_BYTES), round(100_000 / min(1, MEMORY_RATIO)) * 10, "ns")


@cocotb.test()
async def anywhere(dut: Any) -> None:
    """Bursts anywhere, many under way: across rows, banks and 4 KiB, single bytes, the last bytes of the chip; and
    refreshes in between."""
    axi, port, rng = await start(dut)
    expected: dict[int, int] = {}
    # One place in every megabyte, and the same rows of all banks.
    places = [(n << 20) + rng.randrange(1 << 14) for n in range(SIZE >> 20)] + [SIZE - 4096, 4096 - 300, 5 * ROW - 8]
    taken: set[int] = set()
    for _ in range(12):
        jobs = []
        for place in rng.sample(places, 6):
            length = rng.choice([1, 2, 3, 8, 60, 300, 700])
            address = min(place + rng.randrange(3000), SIZE - length)
            span = range(address, address + length)
            if taken.intersection(span):
                continue
            taken.update(span)
            data = rng.randbytes(length)
            expected |= dict(zip(span, data))
            jobs.append((address, length, cocotb.start_soon(axi.write(address, data))))
        for _, _, job in jobs:
            await job
        reads = [(a, n, cocotb.start_soon(axi.read(a, n))) for a, n, _ in jobs]
        for address, length, job in reads:
            assert (await job).data == bytes(expected[a] for a in range(address, address + length)), hex(address)
        word = 4 * rng.randrange(SIZE // 4)
        if not taken.intersection(range(word, word + 4)):
            taken.update(range(word, word + 4))
            value = rng.getrandbits(32)
            expected |= dict(zip(range(word, word + 4), value.to_bytes(4, "little")))
            await port.access(word, data=value)
            assert (await axi.read(word, 4)).data == value.to_bytes(4, "little")
    for address in rng.sample(sorted(expected), 100):
        assert (await axi.read(address, 1)).data == bytes([expected[address]])
    await ClockCycles(dut.clk, 3000)  # some refreshes without traffic
    for address in rng.sample(sorted(expected), 20):
        word = address & ~3
        known = (expected.get(word + i) for i in range(4))
        got = (await port.access(word) or 0).to_bytes(4, "little")
        assert all(k is None or k == g for k, g in zip(known, got))
    check_chip(dut)


@cocotb.test()
async def the_bus_is_reset(dut: Any) -> None:
    """Resets the bus in mid-burst, both ways. Nothing of the old bursts comes out afterwards, memory outside them keeps
    its bytes, and the chip sees nothing wrong."""
    axi, port, rng = await start(dut, master_reset="bus_reset")
    data = rng.randbytes(4096)
    await axi.write(0, data)
    for pause in (1, 9, 30, 70, 150):
        axi.read_if.r_channel.pause = bool(pause % 2)
        cocotb.start_soon(axi.read(0, 2048))
        cocotb.start_soon(axi.write(2048, bytes(1024)))
        await ClockCycles(dut.clk, pause)
        dut.bus_reset.value = 1
        await ClockCycles(dut.clk, 16)  # as long as the bridge resets
        dut.bus_reset.value = 0
        axi.read_if.r_channel.pause = False
        assert await port.access(0) == int.from_bytes(data[:4], "little")
        assert (await axi.read(0, 2048)).data == data[:2048]
        await axi.write(2048, data[2048:3072])
        assert (await axi.read(2048, 2048)).data == data[2048:]
    check_chip(dut)


@cocotb.test()
async def speed(dut: Any) -> None:
    """Cycles of the bus from address to data and from data to response, bytes a cycle of the chip: to $RESULT."""
    axi, _, _ = await start(dut)
    await ready(axi)
    cycle = 0

    async def count() -> None:
        nonlocal cycle
        while True:
            await RisingEdge(dut.clk)
            cycle += 1

    cocotb.start_soon(count())

    async def until(work: Any, asked: list[Any], answered: Any) -> int:
        """Cycles from the handshake of the `asked` signals to the one that is `answered`, while `work` is done."""

        async def watch() -> int:
            while not all(signal.value for signal in asked):
                await RisingEdge(dut.clk)
            begin = cycle
            while not answered.value:
                await RisingEdge(dut.clk)
            return cycle - begin

        task = cocotb.start_soon(watch())
        await work
        return await task

    async def latency(address: int) -> int:
        """Cycles from the handshake on AR to the first beat."""
        return await until(axi.read(address, BUS_BYTES), [dut.axi_arvalid, dut.axi_arready], dut.axi_rvalid)

    async def answer(address: int) -> int:
        """Cycles from the handshake on W to the response."""
        return await until(axi.write(address, bytes(BUS_BYTES)), [dut.axi_wvalid, dut.axi_wready], dut.axi_bvalid)

    hits, misses, answers = [], [], []
    for n in range(36):  # all rows are of one bank
        misses.append(await latency(4 * ROW * (8 + n % 24)))
        hits.append(await latency(4 * ROW * (8 + n % 24) + 64))
        answers.append(await answer(4 * ROW * (8 + n % 24) + 128))
    measured = (("open row", hits), ("other row", misses), ("response", answers))
    cycles = {name: (median(found), max(found)) for name, found in measured}

    async def rate(jobs: list[Any], total: int) -> float:
        begin = cycle
        for task in [cocotb.start_soon(job) for job in jobs]:
            await task
        return total / (cycle - begin) / MEMORY_RATIO

    total = 64 * 256
    rates = {
        "read": await rate([axi.read(256 * n, 256) for n in range(64)], total),
        "write": await rate([axi.write(256 * n, bytes(256)) for n in range(64)], total),
        # Two streams in different banks.
        "both": await rate(
            [axi.read(256 * n, 256) for n in range(32)]
            + [axi.write((1 << 20) + ROW + 256 * n, bytes(256)) for n in range(32)],
            total,
        ),
        # 16 bytes at a time, each in another row of one bank.
        "scattered": await rate([axi.read(4 * ROW * n, 16) for n in range(64)], 64 * 16),
    }
    check_chip(dut)
    Path(os.environ["RESULT"]).write_text(json.dumps({"latency": cycles, "rate": rates}), encoding="utf-8")
