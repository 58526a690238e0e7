"""The NPU beside another core in Amaranth: a starter that writes its registers, runs a program and reads how it ended.

`python examples/amaranth/soc.py` simulates both with a memory, and compares a product of matrices with numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tilewright.hw.interfaces import Axi4, Axi4Lite
from tilewright.hw.npu import Npu
from tilewright.isa.assembler import assemble
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import Launch, Region
from tilewright.isa.encoding import to_bytes
from tilewright.isa.host import mask, run_values
from tilewright.isa.registers import REGISTER

ROWS, SCALE = 8, np.float32(2**-5)
#: Bytes of memory; where program, weights and activations are.
MEMORY, PROGRAM, WEIGHTS, ROWS_AT = 4096, 0, 1024, 2048


class Starter(wiring.Component):
    """A core that has one task: it writes registers from a ROM, waits for the interrupt, and reads STATUS.

    Parameters:
        values: the registers by name, in the order in which they are written.

    Ports:
        start: begin.
        axil: AXI4-Lite master.
        irq: the interrupt.
        done, status: the NPU has ended; its STATUS.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self.writes = [REGISTER[name].offset << 32 | value for name, value in values.items()]
        super().__init__({"start": In(1), "axil": Out(Axi4Lite()), "irq": In(1), "done": Out(1), "status": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axil, last = self.axil, len(self.writes) - 1
        m.submodules.rom = rom = Memory(shape=64, depth=len(self.writes), init=self.writes)
        read = rom.read_port(domain="comb")
        address_taken, data_taken = Signal(), Signal()
        m.d.comb += [
            axil.aw.addr.eq(read.data[32:]),
            axil.w.data.eq(read.data[:32]),
            axil.w.strb.eq(0b1111),
            axil.ar.addr.eq(REGISTER["STATUS"].offset),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [read.addr.eq(0), self.done.eq(0)]
                with m.If(self.start):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [axil.aw.valid.eq(~address_taken), axil.w.valid.eq(~data_taken)]
                with m.If(axil.aw.valid & axil.aw.ready):
                    m.d.sync += address_taken.eq(1)
                with m.If(axil.w.valid & axil.w.ready):
                    m.d.sync += data_taken.eq(1)
                with m.If((address_taken | axil.aw.ready) & (data_taken | axil.w.ready)):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += axil.b.ready.eq(1)
                m.d.sync += [address_taken.eq(0), data_taken.eq(0)]
                with m.If(axil.b.valid):
                    m.d.sync += read.addr.eq(read.addr + 1)
                    m.next = "WRITE"
                    with m.If(read.addr == last):
                        m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self.irq):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += axil.ar.valid.eq(1)
                with m.If(axil.ar.ready):
                    m.next = "STATUS"
            with m.State("STATUS"):
                m.d.comb += axil.r.ready.eq(1)
                with m.If(axil.r.valid):
                    m.d.sync += [self.status.eq(axil.r.data), self.done.eq(1)]
                    m.next = "END"
            with m.State("END"):
                pass
        return m


class Soc(wiring.Component):
    """An NPU and its starter.

    Parameters:
        config: the NPU.
        values: what the starter writes, see `Starter`.

    Ports:
        axi: AXI4 master, to memory.
        start, done, status: see `Starter`.
    """

    def __init__(self, config: NpuConfig, values: Mapping[str, int]) -> None:
        self.config, self.values = config, values
        super().__init__({"axi": Out(Axi4(config)), "start": In(1), "done": Out(1), "status": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain()
        m.submodules.npu = npu = Npu(self.config)
        m.submodules.starter = starter = Starter(self.values)
        wiring.connect(m, wiring.flipped(self.axi), npu.axi)
        wiring.connect(m, starter.axil, npu.axil)
        m.d.comb += [
            starter.irq.eq(npu.irq),
            starter.start.eq(self.start),
            self.done.eq(starter.done),
            self.status.eq(starter.status),
        ]
        return m


def program(config: NpuConfig) -> bytes:
    """Returns the instructions of a product: weights and scales, rows to multiply, sums to bytes, rows back."""
    weights = config.block_in * config.block_out
    text = f"""
        LOAD region=1 target=WGT count=1
        LOAD region=1 offset={weights} target=PRM count=1
        LOAD signal0=1 region=2 target=ACT count={ROWS}
        GEMM_LOOP count={ROWS} act_stride=1 acc_stride=1
        GEMM wait0=1 signal0=2
        VECTOR_LOOP count={ROWS} a_stride=1 dst_stride=1
        VECTOR_POST lo=-128 hi=127
        VECTOR wait0=2 signal0=3 source=ACC dst={ROWS} rounding=EVEN
        STORE wait0=3 region=2 offset={ROWS * config.block_in} row={ROWS} count={ROWS}
        END"""
    return to_bytes(assemble(text))


def registers(code: bytes) -> dict[str, int]:
    """Returns the registers of a run in the order of the writes: regions, the place of the program, START."""
    regions = [
        Region(PROGRAM, WEIGHTS - PROGRAM, read=True),
        Region(WEIGHTS, ROWS_AT - WEIGHTS, read=True),
        Region(ROWS_AT, MEMORY - ROWS_AT, read=True, write=True),
    ]
    return {**run_values(Launch(regions, 0, 0, len(code) // 16)), "CONTROL": mask("CONTROL", "START")}


async def until(ctx: Any, bit: Any, *values: Any) -> tuple[int, ...]:
    """Waits for the clock edge at which `bit` is set. Returns the values there."""
    while True:
        *found, ready = (await ctx.tick().sample(*values, bit))[2:]
        if ready:
            return tuple(found)


async def serve(ctx: Any, axi: Any, memory: bytearray, width: int) -> None:
    """Is an AXI memory, one burst at a time: `width` bytes a beat."""
    while True:
        await until(ctx, axi.ar.valid | axi.aw.valid)
        channel = axi.ar if ctx.get(axi.ar.valid) else axi.aw
        address, beats = ctx.get(channel.addr), ctx.get(channel.len) + 1
        ctx.set(channel.ready, 1)
        await ctx.tick()
        ctx.set(channel.ready, 0)
        for beat in range(beats):
            at = address + width * beat
            if channel is axi.ar:
                ctx.set(axi.r.data, int.from_bytes(memory[at : at + width], "little"))
                ctx.set(axi.r.last, beat == beats - 1)
                ctx.set(axi.r.valid, 1)
                await until(ctx, axi.r.ready)
                ctx.set(axi.r.valid, 0)
            else:
                ctx.set(axi.w.ready, 1)
                data, strobes = await until(ctx, axi.w.valid, axi.w.data, axi.w.strb)
                ctx.set(axi.w.ready, 0)
                for lane, byte in enumerate(data.to_bytes(width, "little")):
                    if strobes >> lane & 1:
                        memory[at + lane] = byte
        if channel is axi.aw:
            ctx.set(axi.b.valid, 1)
            await until(ctx, axi.b.ready)
            ctx.set(axi.b.valid, 0)


def run(config: NpuConfig, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Simulates the SoC on `x` (ROWS x block_in, int8) and `w` (block_out x block_in, int8).

    Returns:
        The product, scaled and rounded, as the NPU stored it (ROWS x block_out, int8); STATUS; cycles.
    """
    code, scales = program(config), np.zeros((config.block_out, 2), np.uint32)
    scales[:, 1] = SCALE.view(np.uint32)
    memory = bytearray(MEMORY)
    for at, data in ((PROGRAM, code), (WEIGHTS, w.tobytes() + scales.tobytes()), (ROWS_AT, x.tobytes())):
        memory[at : at + len(data)] = data
    soc, found = Soc(config, registers(code)), {}

    async def bench(ctx: Any) -> None:
        ctx.set(soc.start, 1)
        cycles = 0
        while not ctx.get(soc.done):
            await ctx.tick()
            cycles += 1
            assert cycles < 10_000, "the NPU does not end"
        found.update(status=ctx.get(soc.status), cycles=cycles)

    async def memory_side(ctx: Any) -> None:
        await serve(ctx, soc.axi, memory, config.bus_bytes)

    simulator = Simulator(soc)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.add_testbench(memory_side, background=True)
    simulator.run()
    stored = memory[ROWS_AT + x.nbytes :][: ROWS * config.block_out]
    return np.frombuffer(bytes(stored), np.int8).reshape(ROWS, -1), found["status"], found["cycles"]


def main() -> int:
    """Prints what the product is; 1 if it is wrong."""
    config, rng = preset("tiny"), np.random.default_rng(1)
    x = rng.integers(-128, 128, (ROWS, config.block_in), np.int8)
    w = rng.integers(-128, 128, (config.block_out, config.block_in), np.int8)
    product, status, cycles = run(config, x, w)
    expected = np.clip(np.rint((x.astype(np.int32) @ w.astype(np.int32).T) * SCALE), -128, 127)
    equal = np.array_equal(product, expected)
    print(f"STATUS {status:#x}, {cycles} cycles, {product.size} bytes {'equal' if equal else 'differ'}")
    return not (equal and status == mask("STATUS", "DONE"))


if __name__ == "__main__":
    sys.exit(main())
