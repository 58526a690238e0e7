"""cocotb side of the tests of `tilewright.fpga.memory`: an AXI4 master and the port of the serial bridge at once."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

SIZE = int(os.environ["SIZE"])
#: The part of it that is worked on.
WINDOW = int(os.environ.get("WINDOW", SIZE))
#: Cycles of the memory's own clock, if it has one, in one of the bus.
MEMORY_RATIO = float(os.environ.get("MEMORY_RATIO", 1))
CYCLE_PS = 10_000


class BridgePort:
    """Reads and writes words by `mem_*`."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        dut.mem_valid.value = 0

    async def access(self, address: int, *, data: int | None = None, strobe: int = 15) -> int | None:
        """Writes `data`, or reads if it is None."""
        dut = self.dut
        dut.mem_valid.value = 1
        dut.mem_write.value = int(data is not None)
        dut.mem_address.value = address
        dut.mem_wdata.value = data or 0
        dut.mem_strobe.value = strobe
        while True:
            await ReadOnly()
            taken = bool(dut.mem_ready.value)
            await RisingEdge(dut.clk)
            if taken:
                break
        dut.mem_valid.value = 0
        if data is not None:
            return None
        while True:
            await ReadOnly()
            answered, value = bool(dut.mem_rvalid.value), int(dut.mem_rdata.value)
            await RisingEdge(dut.clk)
            if answered:
                return value


async def start(dut: Any, master_reset: str = "rst") -> tuple[AxiMaster, BridgePort, random.Random]:
    """Resets everything; `master_reset` is the port that resets the AXI master."""
    cocotb.start_soon(Clock(dut.clk, CYCLE_PS, "ps").start())
    if hasattr(dut, "memory_clk"):
        cocotb.start_soon(Clock(dut.memory_clk, 2 * round(CYCLE_PS / MEMORY_RATIO / 2), "ps").start())
    dut.rst.value = dut.bus_reset.value = 1
    port = BridgePort(dut)
    axi = AxiMaster(AxiBus.from_prefix(dut, "axi"), dut.clk, getattr(dut, master_reset))
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = dut.bus_reset.value = 0
    await RisingEdge(dut.clk)
    return axi, port, random.Random(int(os.environ["SEED"]))


def check_chip(dut: Any) -> None:
    """The model of the memory chip, if there is one, saw nothing wrong."""
    if hasattr(dut, "sdram_fault"):
        assert dut.sdram_fault.value == 0, f"violation {int(dut.sdram_fault.value)} of sdram_chip.sv"


@cocotb.test()
async def both_ports_see_the_same_bytes(dut: Any) -> None:
    """The lower half belongs to the AXI master, the upper half to the bridge; both work at once, with stalls; in the
    end each reads what the other wrote."""
    axi, port, rng = await start(dut)
    stalls = random.Random(rng.random())
    for channel in (axi.read_if.r_channel, axi.write_if.b_channel, axi.write_if.w_channel):
        channel.set_pause_generator(stalls.random() < 0.3 for _ in iter(int, 1))
    expected = bytearray(WINDOW)
    half = WINDOW // 2

    async def master() -> None:
        for _ in range(25):
            length = rng.randint(1, 300)
            address = rng.randrange(half - length)
            if rng.random() < 0.5:
                data = rng.randbytes(length)
                expected[address : address + length] = data
                await axi.write(address, data)
            else:
                assert (await axi.read(address, length)).data == expected[address : address + length]

    async def bridge() -> None:
        mine = random.Random(rng.random())
        for _ in range(150):
            address = half + 4 * mine.randrange(half // 4)
            if mine.random() < 0.5:
                data, strobe = mine.getrandbits(32), mine.getrandbits(4)
                for byte in range(4):
                    if strobe >> byte & 1:
                        expected[address + byte] = data >> 8 * byte & 255
                await port.access(address, data=data, strobe=strobe)
            else:
                assert await port.access(address) == int.from_bytes(expected[address : address + 4], "little")

    tasks = [cocotb.start_soon(master()), cocotb.start_soon(bridge())]
    for task in tasks:
        await task
    assert (await axi.read(half, half)).data == expected[half:]
    for address in range(0, half, 4):
        assert await port.access(address) == int.from_bytes(expected[address : address + 4], "little")
    check_chip(dut)


@cocotb.test()
async def beyond_the_end(dut: Any) -> None:
    """Answers DECERR and changes nothing."""
    axi, _, rng = await start(dut)
    data = rng.randbytes(64)
    await axi.write(0, data)
    for address in (SIZE, 2 * SIZE, 1 << 31):
        assert (await axi.write(address, bytes(64))).resp == AxiResp.DECERR
        assert (await axi.read(address, 64)).resp == AxiResp.DECERR
    assert (await axi.read(0, 64)).data == data
    check_chip(dut)
