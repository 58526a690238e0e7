"""Frames of `tilewright.isa.link.serial`: words to bytes and back, with a CRC that both directions share."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.isa.link.serial import CRC_INITIAL, CRC_POLYNOMIAL, CRC_RESIDUE, ESCAPE, ESCAPE_XOR, FLAG, MAX_WORDS

#: Words of the longest content, CRC included, and one more for content that is too long.
WORD_LIMIT = MAX_WORDS + 4
#: A word of content to send; the CRC follows the last one.
FRAME_WORD = data.StructLayout({"word": 32, "last": 1})


class Crc(wiring.Component):
    """Computes a CRC-32, a bit per cycle.

    Latency: 8 cycles from the byte to `value`.

    Ports:
        clear: starts a frame.
        i: bytes.
        value: the register, not inverted.  good: it has the residue of content with a right CRC.
    """

    def __init__(self) -> None:
        super().__init__(
            {"clear": In(1), "i": In(stream.Signature(8)), "value": Out(32, init=CRC_INITIAL), "good": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = Signal(8)
        left = Signal(range(9))
        m.d.comb += [self.i.ready.eq(left == 0), self.good.eq(self.value == CRC_RESIDUE)]
        with m.If(left != 0):
            feedback = self.value[0] ^ bits[0]
            m.d.sync += [
                self.value.eq(self.value[1:] ^ Mux(feedback, CRC_POLYNOMIAL, 0)),
                bits.eq(bits[1:]),
                left.eq(left - 1),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += [bits.eq(self.i.payload), left.eq(8)]
        with m.If(self.clear):
            m.d.sync += [self.value.eq(CRC_INITIAL), left.eq(0)]
        return m


class FrameReceiver(wiring.Component):
    """Takes the words out of frames. Anything before the first FLAG after `enable` rises is ignored.

    Latency: a word is out in the cycle after its last byte.

    Ports:
        enable: 0 ignores the line.
        i: bytes of the line, 8 cycles apart at least.
        crc_clear, crc_i: to the CRC.  crc_good: from it.
        o: words, the CRC too; the receiver must be ready.  index: number of the word at `o`.
        done: strobe, a frame with content has ended.  good: with `done`, its words are whole and its CRC is right.
        count: with `done`, its words, at most WORD_LIMIT.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "enable": In(1),
                "i": In(stream.Signature(8, always_ready=True)),
                "crc_clear": Out(1),
                "crc_i": Out(stream.Signature(8)),
                "crc_good": In(1),
                "o": Out(stream.Signature(32, always_ready=True)),
                "index": Out(range(WORD_LIMIT + 1)),
                "done": Out(1),
                "good": Out(1),
                "count": Out(range(WORD_LIMIT + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside, escaped = Signal(), Signal()
        place = Signal(2)  # byte of the word
        word = Signal(32)
        flag = self.i.valid & (self.i.payload == FLAG)
        escape = self.i.valid & (self.i.payload == ESCAPE)
        content = Mux(escaped, self.i.payload ^ ESCAPE_XOR, self.i.payload)
        m.d.comb += [
            self.crc_i.payload.eq(content),
            self.o.payload.eq(word),
            self.good.eq(self.crc_good & (place == 0) & ~escaped),
        ]
        m.d.sync += self.o.valid.eq(0)
        with m.If(self.o.valid & (self.count != WORD_LIMIT)):
            m.d.sync += self.count.eq(self.count + 1)
        m.d.comb += self.index.eq(self.count)
        with m.If(~self.enable):
            m.d.sync += inside.eq(0)
        with m.Elif(flag):
            m.d.comb += [self.done.eq(inside & ((self.count != 0) | (place != 0))), self.crc_clear.eq(1)]
            m.d.sync += [inside.eq(1), escaped.eq(0), place.eq(0), self.count.eq(0)]
        with m.Elif(inside & escape & ~escaped):
            m.d.sync += escaped.eq(1)
        with m.Elif(inside & self.i.valid):
            m.d.comb += self.crc_i.valid.eq(1)
            m.d.sync += [
                escaped.eq(0),
                word.eq(Cat(word[8:], content)),
                place.eq(place + 1),
                self.o.valid.eq(place == 3),
            ]
        unread(m, self.crc_i.ready)  # bytes come far slower than it takes them
        return m


class FrameTransmitter(wiring.Component):
    """Makes a frame of words.

    Latency: 2 cycles to the FLAG at `o`, then at the pace of `o`, a byte of content 10 cycles after the last at best.

    Ports:
        i: words; the first one begins a frame, the one with `last` is followed by the CRC.
        crc_clear, crc_i: to the CRC.  crc: its register.
        o: bytes for the line.
        busy: a frame is under way.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(FRAME_WORD)),
                "crc_clear": Out(1),
                "crc_i": Out(stream.Signature(8)),
                "crc": In(32),
                "o": Out(stream.Signature(8)),
                "busy": Out(1),
            }
        )

    class State(enum.Enum):
        IDLE = 0
        FLAG = 1  # sends the opening flag
        WORD = 2  # waits for a word
        BYTE = 3  # gives a byte to the CRC
        SEND = 4  # sends it, or ESCAPE in front of it
        CRC = 5  # takes the CRC as the last word
        END = 6  # sends the closing flag

    def elaborate(self, platform: object) -> Module:
        m = Module()
        s = self.State
        state = Signal(s)
        word = Signal(32)
        place = Signal(2)
        last, closing, escaped = Signal(), Signal(), Signal()  # closing: the word is the CRC
        byte = word[:8]
        special = (byte == FLAG) | (byte == ESCAPE)
        m.d.comb += [self.busy.eq(state != s.IDLE), self.crc_i.payload.eq(byte)]
        with m.Switch(state):
            with m.Case(s.IDLE):
                m.d.comb += self.crc_clear.eq(self.i.valid)
                m.d.sync += closing.eq(0)
                with m.If(self.i.valid):
                    m.d.sync += state.eq(s.FLAG)
            with m.Case(s.FLAG):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(FLAG)]
                with m.If(self.o.ready):
                    m.d.sync += state.eq(s.WORD)
            with m.Case(s.WORD):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [word.eq(self.i.payload.word), last.eq(self.i.payload.last), state.eq(s.BYTE)]
            with m.Case(s.BYTE):
                m.d.comb += self.crc_i.valid.eq(~closing)
                with m.If(self.crc_i.ready | closing):
                    m.d.sync += state.eq(s.SEND)
            with m.Case(s.SEND):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.eq(Mux(escaped, byte ^ ESCAPE_XOR, Mux(special, ESCAPE, byte))),
                ]
                with m.If(self.o.ready):
                    with m.If(special & ~escaped):
                        m.d.sync += escaped.eq(1)
                    with m.Else():
                        m.d.sync += [escaped.eq(0), word.eq(word[8:]), place.eq(place + 1), state.eq(s.BYTE)]
                        with m.If(place == 3):
                            with m.If(closing):
                                m.d.sync += state.eq(s.END)
                            with m.Else():
                                m.d.sync += state.eq(Mux(last, s.CRC, s.WORD))
            with m.Case(s.CRC):
                with m.If(self.crc_i.ready):  # the last byte is in it
                    m.d.sync += [word.eq(~self.crc), closing.eq(1), state.eq(s.BYTE)]
            with m.Case(s.END):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(FLAG)]
                with m.If(self.o.ready):
                    m.d.sync += state.eq(s.IDLE)
        return m
