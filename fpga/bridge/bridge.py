"""`SerialBridge`: requests of `tilewright.isa.link.serial` from a UART to the NPU's registers and memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.fpga.bridge.frames import Crc, FrameReceiver, FrameTransmitter
from tilewright.fpga.bridge.uart import UartReceiver, UartTransmitter
from tilewright.hw.interfaces import Axi4Lite
from tilewright.isa.link.serial import (
    ACCESS_CYCLES,
    BOARD_REGISTER,
    BOARD_REGISTERS,
    BOARD_SPACE,
    IDENTITY,
    MAX_WORDS,
    REQUEST,
    RESET_CYCLES,
    RESPONSE,
    VERSION,
    Command,
    Space,
    Status,
)
from tilewright.isa.registers import REGISTER_SPACE

#: Lowest bit and bits of the fields of a request's first word.
_FIELDS = {b.name: (b.low, b.bits) for b in REQUEST}


class MemoryPort(wiring.Signature):
    """The serial bridge, as it uses memory. A request is taken where `valid` and `ready` meet; `address` in bytes is a
    multiple of 4. Every read taken is answered by one `rvalid`, a cycle later or more, in order."""

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(32),
                "wdata": Out(32),
                "strobe": Out(4),
                "ready": In(1),
                "rvalid": In(1),
                "rdata": In(32),
            }
        )


class _Work(NamedTuple):
    """The request at work.

    Attributes:
        state: state of the bridge.
        head: first word of the request.
        address: byte address of the word at work.  index: its number in the request.
        status: status of the response.
    """

    state: Any
    head: Signal
    address: Signal
    index: Signal
    status: Any

    def field(self, name: str) -> Value:
        """Returns a field of the request's first word."""
        low, bits = _FIELDS[name]
        return self.head[low : low + bits]

    @property
    def command(self) -> Value:
        """The command, a `Command`."""
        return self.field("command")

    @property
    def writes(self) -> Value:
        """The command is a write."""
        return self.command[0]

    @property
    def space(self) -> Value:
        """The address space, a `Space`."""
        return self.command[1:3]

    @property
    def is_last(self) -> Value:
        """The word at work is the last of the request."""
        return self.index == self.field("words")


class _Access(NamedTuple):
    """One access to a space.

    Attributes:
        answered: the space answers, which ends the access.  failed: the answer is an error.  taken: the space accepts
            the request.
        data: the word that was read.
        waited: cycles since the request.
        stale: a read of memory was given up; its answer is still to come.
        sent_address, sent_data: the NPU has accepted the address, the data of a write.
        word: the payload word, from the RAM.
    """

    answered: Signal
    failed: Signal
    taken: Signal
    data: Signal
    waited: Signal
    stale: Signal
    sent_address: Signal
    sent_data: Signal
    word: Signal


class SerialBridge(wiring.Component):
    """Executes requests one after the other; payload is checked before anything is written.

    A request is taken into a block RAM, executed word by word when its CRC is right, and answered from the same RAM.
    While it executes and answers it does not listen.

    Parameters:
        clock_hz: frequency of domain `sync` in Hz.
        baud: bits per second of the line, at most clock_hz / MIN_CYCLES_PER_BIT.

    Ports:
        rx, tx: the line.
        axil: AXI4-Lite master to the NPU.
        mem: memory; one read at most is under way.
        npu_reset: resets the NPU and its bus.
        board_id, memory_bytes: constants the host may read.
    """

    class State(enum.Enum):
        RECEIVE = 0
        CHECK = 1
        FETCH = 2  # the word to write leaves the RAM
        KEEP = 3  # and goes to a register
        ACCESS = 4  # request to the space
        WAIT = 5  # its answer
        NEXT = 6
        HEAD = 7  # first word of the response
        LOOK = 8  # a payload word leaves the RAM
        SEND = 9
        FLUSH = 10  # the frame ends

    def __init__(self, clock_hz: int, baud: int) -> None:
        self.clock_hz, self.baud = clock_hz, baud
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "axil": Out(Axi4Lite()),
                "mem": Out(MemoryPort()),
                "npu_reset": Out(1),
                "board_id": In(32),
                "memory_bytes": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        s = self.State
        state = Signal(s)
        unframe, frame = self._line(m, state)
        head = Signal(32)
        address = Signal(32)
        index = Signal(range(MAX_WORDS))
        status = Signal(Status)
        work = _Work(state, head, address, index, status)
        m.submodules.payload = payload = Memory(shape=Shape(32), depth=MAX_WORDS, init=[])
        store, load = payload.write_port(), payload.read_port()
        m.d.comb += [load.addr.eq(index), load.en.eq((state == s.FETCH) | (state == s.LOOK))]
        ended, good = self._request(m, work, unframe, store)
        board = self._board(m, work, ended & ~good)
        reset_left = Signal(range(RESET_CYCLES + 1))
        m.d.comb += self.npu_reset.eq(reset_left != 0)
        with m.If(reset_left != 0):
            m.d.sync += reset_left.eq(reset_left - 1)
        beyond = self._beyond(m, work)
        access = self._access(m, work, load.data)
        self._answers(m, work, access, board)
        with m.Switch(state):
            with m.Case(s.RECEIVE):
                m.d.sync += [index.eq(0), access.sent_address.eq(0), access.sent_data.eq(0)]
                with m.If(ended & good):
                    m.d.sync += state.eq(s.CHECK)
            with m.Case(s.CHECK):
                self._check(m, work, beyond, store)
            self._execute(m, work, access, store, reset_left)
            self._respond(m, work, access.word, frame)
        return m

    def _line(self, m: Module, state: Signal) -> tuple[FrameReceiver, FrameTransmitter]:
        """Makes UART, frames, and the CRC, which both directions share. Returns the receiver and the transmitter of
        frames."""
        m.submodules.receiver = receiver = UartReceiver(self.clock_hz, self.baud)
        m.submodules.transmitter = transmitter = UartTransmitter(self.clock_hz, self.baud)
        m.submodules.crc = crc = Crc()
        m.submodules.unframe = unframe = FrameReceiver()
        m.submodules.frame = frame = FrameTransmitter()
        wiring.connect(m, receiver.o, unframe.i)
        wiring.connect(m, frame.o, transmitter.i)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            unframe.enable.eq(state == self.State.RECEIVE),
            crc.clear.eq(unframe.crc_clear | frame.crc_clear),
            crc.i.valid.eq(unframe.crc_i.valid | frame.crc_i.valid),
            crc.i.payload.eq(Mux(frame.busy, frame.crc_i.payload, unframe.crc_i.payload)),
            frame.crc_i.ready.eq(crc.i.ready),
            unframe.crc_i.ready.eq(crc.i.ready),
            unframe.crc_good.eq(crc.good),
            frame.crc.eq(crc.value),
        ]
        return unframe, frame

    def _request(self, m: Module, work: _Work, unframe: FrameReceiver, store: Any) -> tuple[Value, Value]:
        """Takes a request: words 0 and 1 are kept in registers, the payload goes to the RAM. Returns whether a frame
        ended in the cycle before, and whether it was whole."""
        payload_index = (unframe.index - 2)[: len(work.index)]
        with m.If(unframe.o.valid):
            with m.If(unframe.index == 0):
                m.d.sync += work.head.eq(unframe.o.payload)
            with m.Elif(unframe.index == 1):
                m.d.sync += work.address.eq(unframe.o.payload)
            with m.Elif(unframe.index < MAX_WORDS + 2):
                m.d.comb += [store.en.eq(1), store.addr.eq(payload_index), store.data.eq(unframe.o.payload)]
        expected = Mux(work.writes, work.field("words") + 4, 3)
        ended, good = Signal(), Signal()
        m.d.sync += [ended.eq(unframe.done), good.eq(unframe.good & (unframe.count == expected))]
        return ended, good

    def _board(self, m: Module, work: _Work, damaged: Value) -> Signal:
        """Returns the board register at the address."""
        bad_frames = Signal(16)
        with m.If(damaged):
            m.d.sync += bad_frames.eq(bad_frames + 1)
        constants: dict[str, Value] = {
            "BRIDGE_IDENTITY": C(IDENTITY, 32),
            "BRIDGE_VERSION": C(VERSION, 32),
            "BOARD_ID": self.board_id,
            "MEMORY_BYTES": self.memory_bytes,
            "CLOCK_HZ": C(self.clock_hz, 32),
            "BAD_FRAMES": bad_frames,
        }
        board = Signal(32)
        with m.Switch(work.address[2:]):
            for r in BOARD_REGISTERS:
                if r.name in constants:
                    with m.Case(r.offset >> 2):
                        m.d.comb += board.eq(constants[r.name])
        return board

    def _beyond(self, m: Module, work: _Work) -> Signal:
        """Returns a bit: the request leaves its space."""
        last_byte = Signal(33)
        limit = Signal(32)
        with m.Switch(work.space):
            with m.Case(Space.BOARD):
                m.d.comb += limit.eq(BOARD_SPACE)
            with m.Case(Space.NPU):
                m.d.comb += limit.eq(REGISTER_SPACE)
            with m.Case(Space.MEMORY):
                m.d.comb += limit.eq(self.memory_bytes)
        m.d.comb += last_byte.eq(work.address + Cat(C(3, 2), work.field("words")))
        beyond = Signal()  # known long before it is looked at
        m.d.sync += beyond.eq(last_byte >= limit)
        return beyond

    def _access(self, m: Module, work: _Work, loaded: Value) -> _Access:
        """Drives the requests to memory and NPU."""
        answered, failed, taken = Signal(), Signal(), Signal()
        data = Signal(32)
        waited = Signal(range(ACCESS_CYCLES))
        stale = Signal()
        accessing = work.state == self.State.ACCESS
        sent_address, sent_data = Signal(), Signal()
        word = Signal(32, reset_less=True)
        m.d.sync += word.eq(loaded)
        address, writes, space = work.address, work.writes, work.space
        first = Mux(work.index == 0, work.field("first_strobe"), 15)
        last = Mux(work.is_last, work.field("last_strobe"), 15)
        m.d.comb += [
            self.mem.valid.eq(accessing & (space == Space.MEMORY) & ~(stale & ~writes)),
            self.mem.write.eq(writes),
            self.mem.address.eq(address),
            self.mem.wdata.eq(word),
            self.mem.strobe.eq(first & last),
            self.axil.aw.valid.eq(accessing & (space == Space.NPU) & writes & ~sent_address),
            self.axil.w.valid.eq(accessing & (space == Space.NPU) & writes & ~sent_data),
            self.axil.ar.valid.eq(accessing & (space == Space.NPU) & ~writes),
            self.axil.aw.addr.eq(address),
            self.axil.aw.prot.eq(0),
            self.axil.ar.prot.eq(0),
            self.axil.ar.addr.eq(address),
            self.axil.w.data.eq(word),
            self.axil.w.strb.eq(15),
            self.axil.b.ready.eq(~accessing),  # also late answers to what was given up
            self.axil.r.ready.eq(~accessing),
        ]
        with m.If(self.mem.rvalid):
            m.d.sync += stale.eq(0)
        return _Access(answered, failed, taken, data, waited, stale, sent_address, sent_data, word)

    def _answers(self, m: Module, work: _Work, access: _Access, board: Value) -> None:
        """Selects the answer of the space."""
        writes, taken, answered, data = work.writes, access.taken, access.answered, access.data
        with m.Switch(work.space):
            with m.Case(Space.BOARD):
                m.d.comb += [taken.eq(1), answered.eq(1), data.eq(board)]
            with m.Case(Space.NPU):
                m.d.comb += [
                    taken.eq(
                        Mux(
                            writes,
                            (access.sent_address | self.axil.aw.ready) & (access.sent_data | self.axil.w.ready),
                            self.axil.ar.ready,
                        )
                    ),
                    answered.eq(Mux(writes, self.axil.b.valid, self.axil.r.valid)),
                    access.failed.eq(Mux(writes, self.axil.b.resp, self.axil.r.resp) != 0),
                    data.eq(self.axil.r.data),
                ]
            with m.Case(Space.MEMORY):
                m.d.comb += [
                    taken.eq(self.mem.valid & self.mem.ready),
                    answered.eq(writes | self.mem.rvalid),
                    data.eq(self.mem.rdata),
                ]

    def _check(self, m: Module, work: _Work, beyond: Value, store: Any) -> None:
        """Checks whether the request may be executed. A repeated write is answered as before, not executed again."""
        s, state, status, address = self.State, work.state, work.status, work.address
        session = Signal()
        previous = Signal(8)
        repeated = session & (previous == work.field("sequence")) & work.writes
        m.d.sync += [state.eq(s.HEAD), previous.eq(work.field("sequence"))]
        with m.If(work.command == Command.HELLO):
            m.d.comb += [store.en.eq(1), store.addr.eq(0), store.data.eq(address)]
            m.d.sync += [session.eq(1), status.eq(Status.OK)]
        with m.Elif(~session):
            m.d.sync += status.eq(Status.NO_SESSION)
        with m.Elif((work.space == Space.LINK) | work.command[3:].any()):
            m.d.sync += status.eq(Status.COMMAND)
        with m.Elif((address[:2] != 0) | beyond):
            m.d.sync += status.eq(Status.ADDRESS)
        with m.Elif(~repeated):
            m.d.sync += [status.eq(Status.OK), state.eq(s.FETCH)]

    def _execute(self, m: Module, work: _Work, access: _Access, store: Any, reset_left: Signal) -> None:
        """Makes the states that execute the request, word by word."""
        s, state, index, status, address = self.State, work.state, work.index, work.status, work.address
        waited, sent_address, sent_data = access.waited, access.sent_address, access.sent_data
        with m.Case(s.FETCH):
            m.d.sync += state.eq(s.KEEP)
        with m.Case(s.KEEP):
            m.d.sync += [state.eq(s.ACCESS), waited.eq(0)]
        with m.Case(s.ACCESS):
            m.d.sync += waited.eq(waited + 1)
            with m.If(self.axil.aw.ready):
                m.d.sync += sent_address.eq(1)
            with m.If(self.axil.w.ready):
                m.d.sync += sent_data.eq(1)
            with m.If(access.taken):
                m.d.sync += state.eq(s.WAIT)
            with m.Elif(waited == ACCESS_CYCLES - 1):
                m.d.sync += [status.eq(Status.TIMEOUT), state.eq(s.HEAD)]
        with m.Case(s.WAIT):
            m.d.sync += [waited.eq(waited + 1), sent_address.eq(0), sent_data.eq(0)]
            with m.If(access.answered):
                m.d.comb += [store.en.eq(~work.writes), store.addr.eq(index), store.data.eq(access.data)]
                m.d.sync += state.eq(s.NEXT)
                resets = address[2:] == BOARD_REGISTER["RESET"].offset >> 2
                with m.If((work.space == Space.BOARD) & work.writes & resets):
                    with m.If(access.word[BOARD_REGISTER["RESET"].bit("NPU").low]):
                        m.d.sync += reset_left.eq(RESET_CYCLES)
                with m.If(access.failed):
                    m.d.sync += [status.eq(Status.BUS), state.eq(s.HEAD)]
            with m.Elif(waited == ACCESS_CYCLES - 1):
                m.d.sync += [status.eq(Status.TIMEOUT), state.eq(s.HEAD)]
                m.d.sync += access.stale.eq(work.space == Space.MEMORY)
        with m.Case(s.NEXT):
            m.d.sync += [index.eq(index + 1), address.eq(address + 4), state.eq(s.FETCH)]
            with m.If(work.is_last):
                m.d.sync += state.eq(s.HEAD)

    def _respond(self, m: Module, work: _Work, word: Value, frame: FrameTransmitter) -> None:
        """Makes the states of the response."""
        s, state, index, status = self.State, work.state, work.index, work.status
        looked = Signal()  # `word` leaves the RAM
        with m.Case(s.HEAD):
            silent = work.writes | (status != Status.OK)
            values = {
                "status": status,
                "sequence": work.field("sequence"),
                "words": Mux(silent, 0, work.field("words") + 1),
            }
            m.d.comb += [frame.i.valid.eq(1), frame.i.payload.last.eq(silent)]
            for b in RESPONSE:
                m.d.comb += frame.i.payload.word[b.low : b.low + b.bits].eq(values[b.name])
            m.d.sync += index.eq(0)
            with m.If(frame.i.ready):
                m.d.sync += state.eq(Mux(silent, s.FLUSH, s.LOOK))
        with m.Case(s.LOOK):
            m.d.sync += looked.eq(~looked)
            with m.If(looked):
                m.d.sync += state.eq(s.SEND)
        with m.Case(s.SEND):
            m.d.comb += [frame.i.valid.eq(1), frame.i.payload.word.eq(word), frame.i.payload.last.eq(work.is_last)]
            with m.If(frame.i.ready):
                m.d.sync += [index.eq(index + 1), state.eq(Mux(work.is_last, s.FLUSH, s.LOOK))]
        with m.Case(s.FLUSH):
            with m.If(~frame.busy):
                m.d.sync += state.eq(s.RECEIVE)
