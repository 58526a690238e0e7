"""UART, 8 data bits, no parity, one stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from tilewright.isa.link.serial import MIN_CYCLES_PER_BIT

#: Bits of the fraction of a cycle in the bit time.
FRACTION_BITS = 8


def bit_time(clock_hz: int, baud: int) -> int:
    """Returns the cycles of a bit in units of 2**-FRACTION_BITS.

    Raises:
        ValueError: fewer than MIN_CYCLES_PER_BIT cycles.
    """
    if not 0 < MIN_CYCLES_PER_BIT * baud <= clock_hz:
        raise ValueError(f"baud must be 1..{clock_hz // MIN_CYCLES_PER_BIT} with a clock of {clock_hz} Hz, not {baud}")
    return round((clock_hz << FRACTION_BITS) / baud)


class BitTimer(wiring.Component):
    """Ticks once per bit; the fraction of a cycle is carried from bit to bit, so that no error adds up.

    Ports:
        restart: starts the count; the first tick comes half a bit later with `half`, else a whole bit later.
        tick: high for one cycle at the end of each bit time.
    """

    def __init__(self, clock_hz: int, baud: int) -> None:
        self.time = bit_time(clock_hz, baud)
        super().__init__({"restart": In(1), "half": In(1), "tick": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        one = 1 << FRACTION_BITS
        left = Signal(range(self.time + one))  # cycles and fraction to the next tick
        m.d.comb += self.tick.eq(left < 2 * one)
        with m.If(self.restart):
            with m.If(self.half):
                m.d.sync += left.eq(self.time // 2)
            with m.Else():
                m.d.sync += left.eq(self.time)
        with m.Elif(self.tick):
            m.d.sync += left.eq(left + (self.time - one))
        with m.Else():
            m.d.sync += left.eq(left - one)
        return m


class UartReceiver(wiring.Component):
    """Samples each bit in its middle. A byte without a stop bit is dropped.

    Latency: a byte is out two cycles and half a bit time after its stop bit began; it stays for one cycle only.

    Ports:
        rx: the line, synchronised here.
        o: bytes; the receiver must be ready.
    """

    def __init__(self, clock_hz: int, baud: int) -> None:
        self.clock_hz, self.baud = clock_hz, baud
        super().__init__({"rx": In(1, init=1), "o": Out(stream.Signature(8, always_ready=True))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.timer = timer = BitTimer(self.clock_hz, self.baud)
        line = Signal(init=1)
        m.submodules.synchronise = FFSynchronizer(self.rx, line, init=1)
        bits = Signal(9)  # data and stop bit move in from above
        left = Signal(range(11))  # samples to come: start, data, stop
        m.d.comb += [self.o.payload.eq(bits[:8])]
        m.d.sync += self.o.valid.eq(0)
        with m.If(left == 0):
            m.d.comb += [timer.restart.eq(1), timer.half.eq(1)]
            with m.If(~line):
                m.d.sync += left.eq(10)
        with m.Elif(timer.tick):
            m.d.sync += [bits.eq(Cat(bits[1:], line)), left.eq(left - 1)]
            with m.If((left == 10) & line):  # a glitch, not a start bit
                m.d.sync += left.eq(0)
            with m.Elif(left == 1):
                m.d.sync += self.o.valid.eq(line)
        return m


class UartTransmitter(wiring.Component):
    """Sends bytes.

    Latency: the start bit begins in the cycle after a byte is taken. The next byte is taken at the end of the stop bit.

    Ports:
        i: bytes.
        tx: the line.
    """

    def __init__(self, clock_hz: int, baud: int) -> None:
        self.clock_hz, self.baud = clock_hz, baud
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.timer = timer = BitTimer(self.clock_hz, self.baud)
        bits = Signal(9, init=0x1FF)
        left = Signal(range(11))
        m.d.comb += [self.tx.eq(bits[0]), self.i.ready.eq(left == 0)]
        m.d.comb += [timer.restart.eq(left == 0), timer.half.eq(0)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [bits.eq(Cat(0, self.i.payload)), left.eq(10)]
        with m.Elif((left != 0) & timer.tick):
            m.d.sync += [bits.eq(Cat(bits[1:], 1)), left.eq(left - 1)]
        return m
