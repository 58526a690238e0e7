"""Slaves of the core that take one cycle or a few: RAM, and the registers behind `IO`."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.fpga.bridge.uart import UartReceiver, UartTransmitter
from tilewright.fpga.standalone.core import Access
from tilewright.fpga.standalone.memory_map import BYTE_CAME, IO_REGISTERS
from tilewright.hw.connections import unread
from tilewright.hw.parts.queue import BlockQueue

#: Bytes that may wait until the core takes them.
WAITING = 1024


class Ram(wiring.Component):
    """Block RAM with contents at power-on. An access takes two cycles.

    Parameters:
        size: bytes.
        contents: bytes at its beginning.

    Raises:
        ValueError: more contents than room.
    """

    def __init__(self, size: int, contents: bytes) -> None:
        if len(contents) > size:
            raise ValueError(f"the contents must have at most {size} bytes, not {len(contents)}")
        padded = contents + bytes(-len(contents) % 4)
        self.words = [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]
        self.depth = size // 4
        super().__init__({"cpu": In(Access())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = Memory(shape=Shape(32), depth=self.depth, init=self.words)
        read, write = store.read_port(), store.write_port(granularity=8)
        row = self.cpu.address[2 : 2 + (self.depth - 1).bit_length()]
        m.d.sync += self.cpu.done.eq(self.cpu.valid & ~self.cpu.done)
        m.d.comb += [
            read.addr.eq(row),
            read.en.eq(1),
            self.cpu.rdata.eq(read.data),
            write.addr.eq(row),
            write.data.eq(self.cpu.wdata),
            write.en.eq(Mux(self.cpu.valid & self.cpu.write & ~self.cpu.done, self.cpu.strobe, 0)),
        ]
        return m


class Io(wiring.Component):
    """The registers of `memory_map.IO_REGISTERS`. An access takes two cycles.

    Parameters:
        clock_hz, baud: clock of domain `sync`, and baud rate of the line.
        memory_bytes, flash_bytes: values of the constants.

    Ports:
        cpu: the master; it reads and writes whole words.
        rx, tx: the line.
        leds: the written value.
    """

    def __init__(self, clock_hz: int, baud: int, memory_bytes: int, flash_bytes: int) -> None:
        self.clock_hz, self.baud = clock_hz, baud
        self.constants = {"CLOCK_HZ": clock_hz, "MEMORY_BYTES": memory_bytes, "FLASH_BYTES": flash_bytes}
        super().__init__({"cpu": In(Access()), "rx": In(1, init=1), "tx": Out(1, init=1), "leds": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cpu = self.cpu
        m.submodules.receiver = receiver = UartReceiver(self.clock_hz, self.baud)
        m.submodules.transmitter = transmitter = UartTransmitter(self.clock_hz, self.baud)
        m.submodules.waiting = waiting = BlockQueue(8, WAITING)
        overflow, time, upper = Signal(), Signal(64), Signal(32)
        number = cpu.address[2 : 2 + (len(IO_REGISTERS) - 1).bit_length()]
        first = cpu.valid & ~cpu.done
        reads = {name: Signal(name=f"reads_{name}") for name in IO_REGISTERS}
        writes = {name: Signal(name=f"writes_{name}") for name in ("UART", "LEDS")}
        for n, name in enumerate(IO_REGISTERS):
            m.d.comb += reads[name].eq(first & ~cpu.write & (number == n))
            if name in writes:
                m.d.comb += writes[name].eq(first & cpu.write & (number == n))
        m.d.sync += [cpu.done.eq(first), time.eq(time + 1)]
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            waiting.i_valid.eq(receiver.o.valid),
            waiting.i_payload.eq(receiver.o.payload),
            waiting.o_ready.eq(reads["UART"]),
            transmitter.i.valid.eq(writes["UART"]),
            transmitter.i.payload.eq(cpu.wdata),
        ]
        came = Mux(waiting.o_valid, waiting.o_payload | BYTE_CAME, 0)
        values = {
            "UART": came,
            "STATUS": Cat(transmitter.i.ready, overflow),
            "TIMER_LO": time[:32],
            "TIMER_HI": upper,
            "LEDS": self.leds,
            **self.constants,
        }
        with m.Switch(number):
            for n, name in enumerate(IO_REGISTERS):
                with m.Case(n):
                    m.d.sync += cpu.rdata.eq(values[name])
        with m.If(reads["TIMER_LO"]):
            m.d.sync += upper.eq(time[32:])
        with m.If(reads["STATUS"]):
            m.d.sync += overflow.eq(0)
        with m.If(receiver.o.valid & ~waiting.i_ready):
            m.d.sync += overflow.eq(1)
        with m.If(writes["LEDS"]):
            m.d.sync += self.leds.eq(cpu.wdata)
        unread(m, cpu.strobe)
        return m
