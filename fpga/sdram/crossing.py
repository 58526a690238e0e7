"""Crosses from the clock of the NPU to that of the SDRAM and back: queues whose pointers cross as Gray codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.fpga.memory import unread_attributes
from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Axi4, Channel
from tilewright.isa.config import NpuConfig


def _gray(value: Value) -> Value:
    return value ^ (value >> 1)[: len(value)]


def _binary(gray: Value) -> Value:
    return Cat(gray[bit:].xor() for bit in range(len(gray)))


class AsyncQueue(wiring.Component):
    """First-word-fall-through queue between two clocks. The oldest entry is in a register besides those of the RAM.

    Latency: an entry is at the output three cycles of the reader after the writer's cycle that takes it, or four.

    One domain may only be reset while the other does nothing, and no pointer may go back to 0 that the other side still
    acts upon: see `tilewright.fpga.sdram.memory`.

    Parameters:
        width: bits of an entry.
        depth: entries of the RAM, a power of two, at least 2.
        writer, reader: clock domains.

    Ports:
        i_valid, i_ready, i_payload: input stream, of the writer.
        o_valid, o_ready, o_payload: output stream, of the reader.
        left: entries that have left the RAM, as far as the writer knows, modulo twice the depth.
        come: entries that have come into it, as far as the reader knows, modulo twice the depth.
    """

    def __init__(self, width: int, depth: int, *, writer: str, reader: str) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        self.width, self.depth, self.writer, self.reader = width, depth, writer, reader
        self.optional = {"left", "come"}
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_payload": In(width),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_payload": Out(width),
                "left": Out(range(2 * depth)),
                "come": Out(range(2 * depth)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        writing, reading = m.d[self.writer], m.d[self.reader]
        # In LUTs: the register at the output would be that of a block RAM, which is slow.
        store = Memory(shape=Shape(self.width), depth=self.depth, init=[], attrs={"ram_style": "distributed"})
        m.submodules.store = store
        write, read = store.write_port(domain=self.writer), store.read_port(domain="comb")
        pointers = {name: Signal(range(2 * self.depth), name=name) for name in ("produced", "consumed")}
        produced, consumed = pointers.values()
        sent = {name: Signal.like(pointer, name=f"{name}_gray") for name, pointer in pointers.items()}
        seen = {name: Signal.like(pointer, name=f"{name}_seen") for name, pointer in pointers.items()}
        # Pointers plus one: whether one moves is known late, and then enables registers in place of an adder.
        after = {name: Signal.like(pointer, name=f"{name}_after", init=1) for name, pointer in pointers.items()}
        for name, domain in (("produced", self.reader), ("consumed", self.writer)):
            m.submodules[f"{name}_crossing"] = FFSynchronizer(sent[name], seen[name], o_domain=domain)

        push = Signal()
        m.d.comb += [
            push.eq(self.i_valid & self.i_ready),
            write.en.eq(self.i_ready),  # moving the pointer is what keeps the entry
            write.addr.eq(produced),
            write.data.eq(self.i_payload),
        ]
        writing += [
            self.left.eq(_binary(seen["consumed"])),
            self.i_ready.eq(Mux(push, after["produced"], produced) ^ self.left != self.depth),
        ]

        takes, some = Signal(), Signal()
        m.d.comb += [
            some.eq(seen["produced"] != sent["consumed"]),
            takes.eq(~self.o_valid | self.o_ready),
            read.addr.eq(consumed),
        ]
        reading += self.come.eq(_binary(seen["produced"]))
        with m.If(takes):
            reading += [self.o_valid.eq(some), self.o_payload.eq(read.data)]
        for name, domain, moves in (("produced", writing, push), ("consumed", reading, takes & some)):
            with m.If(moves):
                domain += [
                    pointers[name].eq(after[name]),
                    sent[name].eq(_gray(after[name])),
                    after[name].eq(after[name] + 1),
                ]
        return m


class CrossedAxi(wiring.Signature):
    """Signals of the five AXI4 channels that a memory needs."""

    FIELDS = {
        "ar": ("addr", "len", "id"),
        "aw": ("addr", "len", "id"),
        "w": ("data", "strb"),
        "r": ("data", "last", "id", "resp"),
        "b": ("id", "resp"),
    }

    def __init__(self, config: NpuConfig) -> None:
        whole = Axi4(config).members
        members = {}
        for channel, names in self.FIELDS.items():
            port = whole[channel]
            bits = {name: Shape.cast(port.signature.members[name].shape).width for name in names}
            members[channel] = wiring.Member(port.flow, Channel(**bits))
        super().__init__(members)


def crossing_members(config: NpuConfig, depths: dict[str, int]) -> dict[str, Any]:
    """Ports between the bus and `AxiSegments`, see `AxiCrossing`."""
    return {
        "axi": In(Axi4(config)),
        "far": Out(CrossedAxi(config)),
        "w_come": Out(range(2 * depths["w"])),
        "r_left": Out(range(2 * depths["r"])),
        "b_left": Out(range(2 * depths["b"])),
    }


Q = TypeVar("Q", bound=Any)


def add_queues(m: Module, axi: Any, far: Any, make: Callable[[str, bool, int], Q]) -> dict[str, Q]:
    """Adds a queue to `m` for each channel between `axi` and `far`, and returns them by name.

    Parameters:
        make: makes a queue of a channel's name, True if it leads to `far`, and the width of an entry.
    """
    queues = {}
    for channel, names in CrossedAxi.FIELDS.items():
        onward = channel in ("ar", "aw", "w")
        source, target = (axi, far) if onward else (far, axi)
        i, o = getattr(source, channel), getattr(target, channel)
        fields: list[Any] = [getattr(i, name) for name in names]
        queue = queues[channel] = make(channel, onward, sum(map(len, fields)))
        m.submodules[channel] = queue
        m.d.comb += [
            queue.i_valid.eq(i.valid),
            i.ready.eq(queue.i_ready),
            queue.i_payload.eq(Cat(*fields)),
            o.valid.eq(queue.o_valid),
            queue.o_ready.eq(o.ready),
            Cat(*[getattr(o, name) for name in names]).eq(queue.o_payload),
        ]
    return queues


class AxiCrossing(wiring.Component):
    """AXI4 between two clocks.

    Parameters:
        config: widths of the bus.
        depths: entries of the queue of each channel.
        near, far: clock domains.

    Ports:
        axi: AXI4 slave, of `near`.
        far: master with the crossing signals, of `far`.
        w_come: beats to write that have come; r_left, b_left: beats read and responses that have left; each as
            `AsyncQueue` counts them, all of `far`.
    """

    def __init__(self, config: NpuConfig, depths: dict[str, int], near: str, far: str) -> None:
        self.depths, self.near_domain, self.far_domain = depths, near, far
        super().__init__(crossing_members(config, depths))

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def queue(channel: str, onward: bool, width: int) -> AsyncQueue:
            writer, reader = (self.near_domain, self.far_domain)[:: 1 if onward else -1]
            return AsyncQueue(width, self.depths[channel], writer=writer, reader=reader)

        queues = add_queues(m, self.axi, self.far, queue)
        m.d.comb += [
            self.w_come.eq(queues["w"].come),
            self.r_left.eq(queues["r"].left),
            self.b_left.eq(queues["b"].left),
        ]
        unread_attributes(m, self.axi)
        unread(m, self.axi.w.last)  # AWLEN counts
        return m
