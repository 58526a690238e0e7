"""UART and CRC in Amaranth's simulator, the serial bridge in Verilator, byte for byte on the line."""

import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from amaranth.hdl import Module

from tests.common.bridge_board import (
    BAUD,
    BOARD_ID,
    BUS_ERROR,
    CLOCK,
    DEAD_MEMORY,
    DEAD_REGISTERS,
    MEMORY,
    REGISTERS,
    bridge_line,
)
from tests.common.rtl_bench import simulate, stream_put, stream_take
from tilewright.fpga.bridge.frames import Crc
from tilewright.fpga.bridge.uart import UartReceiver, UartTransmitter, bit_time
from tilewright.isa.link import serial as protocol
from tilewright.isa.link.serial import BOARD_REGISTER, FLAG, MAX_WORDS, Command, FrameError, Request, Response, Status
from tilewright.isa.registers import REGISTER_SPACE

# The description.


def test_frames_there_and_back() -> None:
    rng = random.Random(1)
    for size in (4, 8, 64, 1024):
        content = bytes(rng.choice((FLAG, protocol.ESCAPE, 0x20, rng.randrange(256))) for _ in range(size))
        line = protocol.frame(content)
        assert line[0] == line[-1] == FLAG and FLAG not in line[1:-1]
        assert protocol.unframe(line[1:-1]) == content


def test_damaged_frames_are_found() -> None:
    rng = random.Random(2)
    body = protocol.frame(rng.randbytes(32))[1:-1]
    for i in range(len(body)):
        for damaged in (
            body[:i] + body[i + 1 :],
            body[: i + 1] + body[i:],
            body[:i] + bytes([body[i] ^ 4]) + body[i + 1 :],
        ):
            if damaged != body and FLAG not in damaged:
                with pytest.raises(FrameError):
                    protocol.unframe(damaged)


def test_requests_and_limits() -> None:
    with pytest.raises(ValueError):
        Request(Command.WRITE_NPU, 0, 0, 2, b"1234").to_bytes()
    with pytest.raises(ValueError):
        Request(Command.READ_NPU, 0, 0, MAX_WORDS + 1).to_bytes()
    content = protocol.unframe(Request(Command.READ_MEMORY, 7, 0x1234, MAX_WORDS).to_bytes()[1:-1])
    assert content == bytes([Command.READ_MEMORY, 7, 0xFF, MAX_WORDS - 1]) + struct.pack("<I", 0x1234)


def test_crc_equals_zlib() -> None:
    dut = Crc()
    data = random.Random(3).randbytes(40)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        await stream_put(ctx, dut.i, data + struct.pack("<I", zlib.crc32(data)))
        await ctx.tick().repeat(8)
        assert ctx.get(dut.good) == 1

    simulate(dut, bench)


# The UART.


@pytest.mark.medium
@pytest.mark.parametrize("clock, baud", [(25_000_000, 3_000_000), (24_000_000, 3_000_000), (27_000_000, 115_200)])
def test_uart_loops_back(clock: int, baud: int) -> None:
    m = Module()
    m.submodules.tx = tx = UartTransmitter(clock, baud)
    m.submodules.rx = rx = UartReceiver(clock, baud)
    m.d.comb += rx.rx.eq(tx.tx)
    data = bytes(random.Random(4).randbytes(20 if baud > 1_000_000 else 3))
    got = bytearray()

    async def send(ctx: Any) -> None:
        await stream_put(ctx, tx.i, data)

    async def bench(ctx: Any) -> None:
        got.extend(await stream_take(ctx, rx.o, len(data)))

    simulate(m, bench, send, clock_hz=CLOCK)
    assert got == data


@pytest.mark.parametrize("error", [-0.03, 0.03])
def test_uart_takes_a_baud_rate_that_is_off(error: float) -> None:
    dut = UartReceiver(CLOCK, BAUD)
    got = bytearray()
    data = bytes([0x00, 0xFF, 0x55, 0x80, 0x01])

    async def send(ctx: Any) -> None:
        for byte in data:
            for bit in (0, *(byte >> i & 1 for i in range(8)), 1):
                ctx.set(dut.rx, bit)
                await ctx.delay((1 + error) / BAUD)

    async def bench(ctx: Any) -> None:
        got.extend(await stream_take(ctx, dut.o, len(data)))

    simulate(dut, bench, send, clock_hz=CLOCK)
    assert got == data


def test_baud_rates_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"baud must be 1\.\.3125000"):
        bit_time(25_000_000, 4_000_000)


# The bridge.


class Host:
    """The other end of the line."""

    def __init__(self) -> None:
        self.line = bridge_line()
        self.received = bytearray()

    def answers(self, cycles: int = 4000) -> list[Response]:
        """Responses until the line is quiet for so many cycles."""
        found = bytearray()
        while True:
            more = self.line.run(cycles)
            found += more
            if not more and not self.line.queued:
                break
        return [Response.from_bytes(body) for body in bytes(found).split(bytes([FLAG])) if body]

    def send(self, data: bytes) -> None:
        self.line.send(data)

    def ask(self, command: Command, sequence: int, address: int, *args: Any, **more: Any) -> Response:
        self.send(Request(command, sequence, address, *args, **more).to_bytes())
        (response,) = self.answers()
        assert response.sequence == sequence
        return response

    def count(self, sequence: int) -> tuple[int, int]:
        """(register writes, resets) so far."""
        (value,) = struct.unpack("<I", self.ask(Command.READ_NPU, sequence, 4 * REGISTERS).payload)
        return value & 0xFFFF, value >> 16


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.line.close()


@pytest.mark.cosim
def test_session_and_board_registers(host: Host) -> None:
    assert host.ask(Command.READ_BOARD, 1, 0).status == Status.NO_SESSION
    hello = host.ask(Command.HELLO, 2, 0xC0FFEE7E)
    assert hello == Response(Status.OK, 2, struct.pack("<I", 0xC0FFEE7E))
    values = struct.unpack("<6I", host.ask(Command.READ_BOARD, 3, 0, 6).payload)
    assert values == (protocol.IDENTITY, protocol.VERSION, BOARD_ID, MEMORY, CLOCK, 0)
    reset = BOARD_REGISTER["RESET"].offset
    for sequence, bit in ((4, 0), (5, 1)):
        assert host.ask(Command.WRITE_BOARD, sequence, reset, 1, struct.pack("<I", bit)).status == Status.OK
        assert host.count(sequence)[1] == bit
    assert host.ask(Command.READ_BOARD, 6, protocol.BOARD_SPACE).status == Status.ADDRESS
    host.line.reset()
    assert host.ask(Command.READ_BOARD, 7, 0).status == Status.NO_SESSION


@pytest.mark.cosim
@pytest.mark.parametrize("command", [1, 8, 0x46, 255])
def test_unknown_commands(host: Host, command: int) -> None:
    host.ask(Command.HELLO, 0, 0)
    content = struct.pack("<BBBBI", command, 1, 255, 0, 0) + bytes(4 * (command & 1))
    host.send(protocol.frame(content))
    assert host.answers() == [Response(Status.COMMAND, 1)]


@pytest.mark.cosim
def test_memory(host: Host) -> None:
    rng = random.Random(6)
    host.ask(Command.HELLO, 0, 0)
    data = bytes(rng.choice((0x7D, 0x7E, rng.randrange(256))) for _ in range(4 * MAX_WORDS))
    assert host.ask(Command.WRITE_MEMORY, 1, 512, MAX_WORDS, data).status == Status.OK
    whole = b"".join(host.ask(Command.READ_MEMORY, 2 + i, 1024 * i, MAX_WORDS).payload for i in range(4))
    assert whole == bytes(512) + data + bytes(MEMORY - 512 - len(data))
    # Bytes at both ends, and in one word.
    host.ask(Command.WRITE_MEMORY, 10, 0, 3, b"abcdefghijkl", first_strobe=8, last_strobe=3)
    host.ask(Command.WRITE_MEMORY, 11, 16, 1, b"wxyz", first_strobe=0b1110, last_strobe=0b0111)
    assert host.ask(Command.READ_MEMORY, 12, 0, 5).payload == b"\0\0\0defghij\0\0\0\0\0\0\0xy\0"
    # The end of memory, and beyond it.
    assert host.ask(Command.READ_MEMORY, 13, MEMORY - 8, 2).payload == bytes(8)
    refused = [(MEMORY - 8, 3), (MEMORY, 1), (2, 1), (0xFFFFFFFC, 2)]
    for sequence, (address, words) in enumerate(refused, 14):
        assert host.ask(Command.READ_MEMORY, sequence, address, words) == Response(Status.ADDRESS, sequence)


@pytest.mark.cosim
def test_registers(host: Host) -> None:
    host.ask(Command.HELLO, 0, 0)
    values = struct.pack("<4I", 1, 2, 3, 0xFFFFFFFF)
    assert host.ask(Command.WRITE_NPU, 1, 16, 4, values).status == Status.OK
    assert host.ask(Command.READ_NPU, 2, 20, 3).payload == values[4:]
    assert host.count(3) == (4, 0)
    assert host.ask(Command.READ_NPU, 4, REGISTER_SPACE).status == Status.ADDRESS
    host.line.faults(BUS_ERROR)
    assert host.ask(Command.READ_NPU, 5, 20).status == Status.BUS
    assert host.ask(Command.WRITE_NPU, 6, 20, 1, b"abcd").status == Status.BUS


@pytest.mark.cosim
def test_a_repeated_write_is_executed_once(host: Host) -> None:
    host.ask(Command.HELLO, 255, 0)
    write = Request(Command.WRITE_NPU, 0, 0x10, 1, struct.pack("<I", 1)).to_bytes()
    for _ in range(3):  # the host heard no answer
        host.send(write)
        assert host.answers() == [Response(Status.OK, 0)]
    host.send(write + write)  # the line doubled it; while the bridge answers it does not listen
    answers = host.answers()
    assert 1 <= len(answers) <= 2 and set(answers) == {Response(Status.OK, 0)}
    assert host.count(1) == (1, 0)
    assert host.count(1) == (1, 0)  # reads may be repeated as well
    host.ask(Command.WRITE_NPU, 2, 0x10, 1, struct.pack("<I", 1))
    assert host.count(3) == (2, 0)


@pytest.mark.cosim
def test_damaged_frames_do_nothing(host: Host) -> None:
    """A write loses, doubles or changes a byte at every place; memory is never touched, and the next request works."""
    rng = random.Random(7)
    host.ask(Command.HELLO, 0, 0)
    write = Request(Command.WRITE_MEMORY, 1, 0, 4, rng.randbytes(16)).to_bytes()
    damaged = [rng.randbytes(30).replace(bytes([FLAG]), b"") for _ in range(3)]
    for i in range(1, len(write) - 1):
        damaged += [write[:i] + write[i + 1 :], write[: i + 1] + write[i:], write[:i]]
        damaged += [write[:i] + bytes([write[i] ^ 1 << rng.randrange(8)]) + write[i + 1 :]]
    damaged.append(protocol.frame(struct.pack("<BBBBI", Command.WRITE_MEMORY, 1, 255, 3, 0) + bytes(20)))  # too long
    damaged.append(protocol.frame(struct.pack("<BBBBI", Command.WRITE_MEMORY, 1, 255, 3, 0) + bytes(12)))  # too short
    damaged.append(protocol.frame(struct.pack("<BBBBI", Command.READ_MEMORY, 1, 255, 0, 0) + bytes(4 * MAX_WORDS + 64)))
    for sequence, line in enumerate(damaged, 2):
        host.send(line)
        assert host.answers() == [], line.hex()
        good = host.ask(Command.READ_MEMORY, sequence % 256, 0, 4)
        assert good == Response(Status.OK, sequence % 256, bytes(16)), line.hex()
    (bad,) = struct.unpack("<I", host.ask(Command.READ_BOARD, 0, BOARD_REGISTER["BAD_FRAMES"].offset).payload)
    assert bad >= 3 * (len(write) - 2)


@pytest.mark.cosim
def test_dead_slaves_end_in_a_timeout(host: Host) -> None:
    host.ask(Command.HELLO, 0, 0)
    for fault, read, write in (
        (DEAD_REGISTERS, Command.READ_NPU, Command.WRITE_NPU),
        (DEAD_MEMORY, Command.READ_MEMORY, Command.WRITE_MEMORY),
    ):
        host.line.faults(fault)
        for sequence, request in enumerate((Request(read, 1, 0), Request(write, 2, 0, 1, b"abcd")), 1):
            host.send(request.to_bytes())
            assert host.answers(2 * protocol.ACCESS_CYCLES) == [Response(Status.TIMEOUT, sequence)]
        host.line.faults(0)
        assert host.ask(read, 3, 4).status == Status.OK
