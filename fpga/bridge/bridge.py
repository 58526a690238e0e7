"""`SerialBridge`: requests of `isa.link.serial` from a UART to the NPU's registers and memory."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fpga.bridge.frames import Crc, FrameReceiver, FrameTransmitter
from fpga.bridge.uart import UartReceiver, UartTransmitter
from hw.interfaces import Axi4Lite
from isa.link.serial import (
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
from isa.registers import REGISTER_SPACE


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


class SerialBridge(wiring.Component):
    """Executes requests one after the other; payload is checked before anything is written.

    A request is taken into a block RAM, executed word by word when its CRC is right, and answered from the same RAM.
    While it executes and answers it does not listen.

    Parameters:
        clock_hz: of domain `sync`.
        baud: of the line, at most clock_hz / MIN_CYCLES_PER_BIT.

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
            unframe.enable.eq(state == s.RECEIVE),
            crc.clear.eq(unframe.crc_clear | frame.crc_clear),
            crc.i.valid.eq(unframe.crc_i.valid | frame.crc_i.valid),
            crc.i.payload.eq(Mux(frame.busy, frame.crc_i.payload, unframe.crc_i.payload)),
            frame.crc_i.ready.eq(crc.i.ready),
            unframe.crc_i.ready.eq(crc.i.ready),
            unframe.crc_good.eq(crc.good),
            frame.crc.eq(crc.value),
        ]

        # The request. Words 0 and 1 are kept in registers, what follows goes to the RAM.
        head = Signal(32)
        address = Signal(32)
        index = Signal(range(MAX_WORDS))
        request = {b.name: head[b.low : b.low + b.bits] for b in REQUEST}
        command = request["command"]
        writes = command[0]
        space = command[1:3]
        payload_index = (unframe.index - 2)[: len(index)]
        m.submodules.payload = payload = Memory(shape=Shape(32), depth=MAX_WORDS, init=[])
        store, load = payload.write_port(), payload.read_port()
        m.d.comb += [load.addr.eq(index), load.en.eq((state == s.FETCH) | (state == s.LOOK))]
        with m.If(unframe.o.valid):
            with m.If(unframe.index == 0):
                m.d.sync += head.eq(unframe.o.payload)
            with m.Elif(unframe.index == 1):
                m.d.sync += address.eq(unframe.o.payload)
            with m.Elif(unframe.index < MAX_WORDS + 2):
                m.d.comb += [store.en.eq(1), store.addr.eq(payload_index), store.data.eq(unframe.o.payload)]
        expected = Mux(writes, request["words"] + 4, 3)
        ended, good = Signal(), Signal()  # a frame did in the cycle before; it was whole
        m.d.sync += [ended.eq(unframe.done), good.eq(unframe.good & (unframe.count == expected))]

        # Board registers.
        bad_frames = Signal(16)
        with m.If(ended & ~good):
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
        with m.Switch(address[2:]):
            for r in BOARD_REGISTERS:
                if r.name in constants:
                    with m.Case(r.offset >> 2):
                        m.d.comb += board.eq(constants[r.name])
        reset_left = Signal(range(RESET_CYCLES + 1))
        m.d.comb += self.npu_reset.eq(reset_left != 0)
        with m.If(reset_left != 0):
            m.d.sync += reset_left.eq(reset_left - 1)

        # What may be executed.
        last_byte = Signal(33)
        limit = Signal(32)
        with m.Switch(space):
            with m.Case(Space.BOARD):
                m.d.comb += limit.eq(BOARD_SPACE)
            with m.Case(Space.NPU):
                m.d.comb += limit.eq(REGISTER_SPACE)
            with m.Case(Space.MEMORY):
                m.d.comb += limit.eq(self.memory_bytes)
        m.d.comb += last_byte.eq(address + Cat(C(3, 2), request["words"]))
        beyond = Signal()  # known long before it is looked at
        m.d.sync += beyond.eq(last_byte >= limit)
        session = Signal()
        previous = Signal(8)
        status = Signal(Status)

        # One access to a space: `answered` ends it, with `data` of a read and `failed`.
        answered, failed, taken = Signal(), Signal(), Signal()
        data = Signal(32)
        waited = Signal(range(ACCESS_CYCLES))
        stale = Signal()  # a read of memory was given up; its answer is still to come
        is_last = index == request["words"]
        accessing = state == s.ACCESS
        sent_address, sent_data = Signal(), Signal()
        word = Signal(32, reset_less=True)  # of the RAM
        looked = Signal()  # it leaves the RAM
        m.d.sync += word.eq(load.data)
        m.d.comb += [
            self.mem.valid.eq(accessing & (space == Space.MEMORY) & ~(stale & ~writes)),
            self.mem.write.eq(writes),
            self.mem.address.eq(address),
            self.mem.wdata.eq(word),
            self.mem.strobe.eq(Mux(index == 0, request["first_strobe"], 15) & Mux(is_last, request["last_strobe"], 15)),
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
        with m.Switch(space):
            with m.Case(Space.BOARD):
                m.d.comb += [taken.eq(1), answered.eq(1), data.eq(board)]
            with m.Case(Space.NPU):
                m.d.comb += [
                    taken.eq(
                        Mux(
                            writes,
                            (sent_address | self.axil.aw.ready) & (sent_data | self.axil.w.ready),
                            self.axil.ar.ready,
                        )
                    ),
                    answered.eq(Mux(writes, self.axil.b.valid, self.axil.r.valid)),
                    failed.eq(Mux(writes, self.axil.b.resp, self.axil.r.resp) != 0),
                    data.eq(self.axil.r.data),
                ]
            with m.Case(Space.MEMORY):
                m.d.comb += [
                    taken.eq(self.mem.valid & self.mem.ready),
                    answered.eq(writes | self.mem.rvalid),
                    data.eq(self.mem.rdata),
                ]

        with m.Switch(state):
            with m.Case(s.RECEIVE):
                m.d.sync += [index.eq(0), sent_address.eq(0), sent_data.eq(0)]
                with m.If(ended & good):
                    m.d.sync += state.eq(s.CHECK)
            with m.Case(s.CHECK):
                repeated = session & (previous == request["sequence"]) & writes
                m.d.sync += [state.eq(s.HEAD), previous.eq(request["sequence"])]
                with m.If(command == Command.HELLO):
                    m.d.comb += [store.en.eq(1), store.addr.eq(0), store.data.eq(address)]
                    m.d.sync += [session.eq(1), status.eq(Status.OK)]
                with m.Elif(~session):
                    m.d.sync += status.eq(Status.NO_SESSION)
                with m.Elif((space == Space.LINK) | command[3:].any()):
                    m.d.sync += status.eq(Status.COMMAND)
                with m.Elif((address[:2] != 0) | beyond):
                    m.d.sync += status.eq(Status.ADDRESS)
                with m.Elif(~repeated):
                    m.d.sync += [status.eq(Status.OK), state.eq(s.FETCH)]
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
                with m.If(taken):
                    m.d.sync += state.eq(s.WAIT)
                with m.Elif(waited == ACCESS_CYCLES - 1):
                    m.d.sync += [status.eq(Status.TIMEOUT), state.eq(s.HEAD)]
            with m.Case(s.WAIT):
                m.d.sync += [waited.eq(waited + 1), sent_address.eq(0), sent_data.eq(0)]
                with m.If(answered):
                    m.d.comb += [store.en.eq(~writes), store.addr.eq(index), store.data.eq(data)]
                    m.d.sync += state.eq(s.NEXT)
                    with m.If((space == Space.BOARD) & writes & (address[2:] == BOARD_REGISTER["RESET"].offset >> 2)):
                        with m.If(word[BOARD_REGISTER["RESET"].bit("NPU").low]):
                            m.d.sync += reset_left.eq(RESET_CYCLES)
                    with m.If(failed):
                        m.d.sync += [status.eq(Status.BUS), state.eq(s.HEAD)]
                with m.Elif(waited == ACCESS_CYCLES - 1):
                    m.d.sync += [status.eq(Status.TIMEOUT), state.eq(s.HEAD), stale.eq(space == Space.MEMORY)]
            with m.Case(s.NEXT):
                m.d.sync += [index.eq(index + 1), address.eq(address + 4), state.eq(s.FETCH)]
                with m.If(is_last):
                    m.d.sync += state.eq(s.HEAD)
            with m.Case(s.HEAD):
                silent = writes | (status != Status.OK)
                values = {
                    "status": status,
                    "sequence": request["sequence"],
                    "words": Mux(silent, 0, request["words"] + 1),
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
                m.d.comb += [
                    frame.i.valid.eq(1),
                    frame.i.payload.word.eq(word),
                    frame.i.payload.last.eq(is_last),
                ]
                with m.If(frame.i.ready):
                    m.d.sync += [index.eq(index + 1), state.eq(Mux(is_last, s.FLUSH, s.LOOK))]
            with m.Case(s.FLUSH):
                with m.If(~frame.busy):
                    m.d.sync += state.eq(s.RECEIVE)
        return m
