"""The memory of small boards: block RAM behind AXI4, with a second port for the serial bridge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from tilewright.fpga.bridge.bridge import MemoryPort
from tilewright.hw.connections import unread
from tilewright.hw.host.reset import reset_by
from tilewright.hw.interfaces import Axi4
from tilewright.hw.parts.queue import Queue
from tilewright.isa.config import NpuConfig

#: Read beats asked for and not yet taken, at most: enough to cover the cycles from a read to its beat.
READ_BEATS = 8
#: Cycles from asking for a row to having it: its address, the RAM, a register beside the RAM, one beside its readers.
READ_STAGES = 4
#: Rows of a bank: as many as a block RAM has at its deepest, so that nothing lies between it and its register.
BANK_ROWS = 1 << 14
_IN_BANK = (BANK_ROWS - 1).bit_length()
#: Entries of the queues of addresses and write data.
ADDRESSES = 2
OKAY, DECERR = 0, 3
#: Signals of the bridge's request.
REQUEST = ("valid", "write", "address", "wdata", "strobe")


def memory_members(config: NpuConfig) -> dict[str, Any]:
    """The ports of a memory: AXI4 slave, the serial bridge, and `bus_reset`.

    `bus_reset` resets the logic between the AXI4 port and the memory, as the master is reset in the same cycle. Nothing
    else does: it is a register that is 1 after a reset of `sync`.
    """
    return {"axi": In(Axi4(config)), "mem": In(MemoryPort()), "bus_reset": In(1)}


def reached_bytes(memory: Any, config: NpuConfig) -> int:
    """Bytes of a memory that the addresses of an NPU reach."""
    return min(int(memory.size), 1 << config.axi_address_bits)


def channel_queues(
    m: Module, slave: Any, channels: Mapping[str, Sequence[str]], depths: Mapping[str, int]
) -> tuple[dict[str, Queue], dict[str, dict[str, Signal]]]:
    """Queues behind AXI4 channels to a slave, so that the master sees registers: by channel the queue, whose output is
    still to be read, and its fields by name. `channels` names the fields, `depths` the entries where they are not
    ADDRESSES.
    """
    queues: dict[str, Queue] = {}
    fields: dict[str, dict[str, Signal]] = {}
    for channel, names in channels.items():
        port = getattr(slave, channel)
        ports = {name: getattr(port, name) for name in names}
        fields[channel] = {name: Signal(len(value), name=f"{channel}_{name}") for name, value in ports.items()}
        queue = queues[channel] = Queue(sum(map(len, ports.values())), depths.get(channel, ADDRESSES))
        m.submodules[f"{channel}_queue"] = queue
        m.d.comb += [
            queue.i_valid.eq(port.valid),
            port.ready.eq(queue.i_ready),
            queue.i_payload.eq(Cat(*ports.values())),
            Cat(*fields[channel].values()).eq(queue.o_payload),
        ]
    return queues, fields


def unread_attributes(m: Module, slave: Any) -> None:
    """Marks attributes unused: an AXI4 slave assumes INCR bursts of full-width beats, and serves them all alike."""
    for channel in (slave.ar, slave.aw):
        unread(m, channel.burst, channel.size, channel.cache, channel.prot)


class _Bridge(NamedTuple):
    """The request of the bridge; `word`: 32-bit word of the row."""

    reads: Value
    writes: Value
    row: Value
    word: Value
    data: Signal
    strobe: Signal


class OnChipMemory(wiring.Component):
    """`size` bytes of block RAM from address 0 on, one read and one write port, both shared: the bridge goes first.

    Latency: first beat of a read 7 cycles after its address is taken, then a beat per cycle; the next burst follows
    without a gap. Write data is taken a beat per cycle; the response comes 2 cycles after the last beat at the
    earliest. Bursts must be INCR with full-width beats. Addresses beyond the memory answer DECERR.

    Parameters:
        config: widths of the bus.
        size: bytes, a multiple of the bus width.

    Ports:
        axi, mem, bus_reset: see `memory_members`.

    Raises:
        ValueError: size is no positive multiple of the bus width.
    """

    def __init__(self, config: NpuConfig, size: int) -> None:
        if size < config.bus_bytes or size % config.bus_bytes:
            raise ValueError(f"size must be a positive multiple of {config.bus_bytes} bytes, not {size!r}")
        self.config, self.size = config, size
        self._rows = size // config.bus_bytes
        #: Bits of a byte's place in a row.
        self._low = (config.bus_bytes - 1).bit_length()
        #: Ports that lead to the pins of the board: none.
        self.pins: dict[str, object] = {}
        super().__init__(memory_members(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._banks(m)
        channels = {"ar": ("addr", "len", "id"), "aw": ("addr", "id"), "w": ("data", "strb", "last")}
        queues, fields = channel_queues(m, self.axi, channels, {})
        bridge = self._bridge(m)
        m.submodules.beats = beats = Queue(8 * self.config.bus_bytes + 3, READ_BEATS)
        read_row, asked = self._reads(m, banks, bridge, queues["ar"], fields["ar"])
        self._beats(m, banks, read_row, asked, beats)
        beat, write_row, write_outside = self._bursts_written(m, bridge, queues, fields)
        self._writes(m, banks, bridge, fields["w"], write_row, beat & ~write_outside)
        unread_attributes(m, self.axi)
        unread(m, self.axi.aw.len, beats.i_ready)  # beats end with `last`; `under_way` counts them
        whole = Module()
        whole.submodules.bus = reset_by(whole, m, self.bus_reset, "bus")
        return whole

    def _banks(self, m: Module) -> list[tuple[Any, Any]]:
        """Builds the RAM: a read port and a write port for every BANK_ROWS rows."""
        banks: list[tuple[Any, Any]] = []
        for first_row in range(0, self._rows, BANK_ROWS):
            depth = min(BANK_ROWS, self._rows - first_row)
            store = Memory(shape=Shape(8 * self.config.bus_bytes), depth=depth, init=[])
            m.submodules[f"store{len(banks)}"] = store
            banks.append((store.read_port(), store.write_port(granularity=8)))
        return banks

    def _bridge(self, m: Module) -> _Bridge:
        """The bridge's request, delayed a cycle. It is always taken."""
        bridge = {name: Signal.like(getattr(self.mem, name), name=f"mem_{name}") for name in REQUEST}
        m.d.sync += [register.eq(getattr(self.mem, name)) for name, register in bridge.items()]
        m.d.comb += self.mem.ready.eq(1)
        return _Bridge(
            reads=bridge["valid"] & ~bridge["write"],
            writes=bridge["valid"] & bridge["write"],
            row=bridge["address"][self._low :],
            word=bridge["address"][2 : self._low],
            data=bridge["wdata"],
            strobe=bridge["strobe"],
        )

    def _reads(
        self, m: Module, banks: list[tuple[Any, Any]], bridge: _Bridge, reads: Queue, fields: dict[str, Signal]
    ) -> tuple[Signal, Value]:
        """Reads a row of the burst in every cycle while its beat has room. Returns the row that is read, a cycle later,
        with its purpose: for a beat, the last of its burst, outside of the memory, id; for the bridge, and the word.
        """
        read_address, read_length, next_read_id = fields.values()
        active, outside, read_id = Signal(), Signal(), Signal()
        row, left = Signal(range(self._rows)), Signal(8)
        under_way = Signal(range(READ_BEATS + 1))
        issue, last, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            issue.eq(active & ~bridge.reads & (under_way != READ_BEATS)),
            last.eq(issue & (left == 0)),
            reads.o_ready.eq(~active | last),
            taken.eq(self.axi.r.valid & self.axi.r.ready),
        ]
        # The blocks of RAM lie all over the FPGA: their inputs and outputs cross it in a cycle of their own.
        read_row, reading = Signal(range(self._rows), reset_less=True), Signal()
        m.d.sync += [read_row.eq(Mux(bridge.reads, bridge.row, row)), reading.eq(issue | bridge.reads)]
        for read_port, _ in banks:
            m.d.comb += [read_port.en.eq(reading), read_port.addr.eq(read_row)]
        with m.If(issue):
            m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
        with m.If(last):
            m.d.sync += active.eq(0)
        with m.If(reads.o_valid & reads.o_ready):
            first = read_address[self._low :]
            m.d.sync += [active.eq(1), row.eq(first), left.eq(read_length), outside.eq(first >= self._rows)]
            m.d.sync += read_id.eq(next_read_id)
        m.d.sync += under_way.eq(under_way + issue - taken)
        return read_row, Cat(issue, last, outside, read_id, bridge.reads, bridge.word)

    def _beats(self, m: Module, banks: list[tuple[Any, Any]], read_row: Signal, asked: Value, beats: Queue) -> None:
        """Answers a read once the row is there: a beat of the burst, or a word for the bridge."""
        for stage in range(READ_STAGES):
            moved = Signal(len(asked), name=f"asked{stage}")
            m.d.sync += moved.eq(asked)
            asked = moved
        there, there_last, there_outside, there_id, answered = asked[:5]
        data = self._data(m, [read_port for read_port, _ in banks], read_row)
        bad = Signal()
        m.d.comb += [
            beats.i_valid.eq(there),
            beats.i_payload.eq(Cat(data, there_last, there_id, there_outside)),
            self.axi.r.valid.eq(beats.o_valid),
            beats.o_ready.eq(self.axi.r.ready),
            Cat(self.axi.r.data, self.axi.r.last, self.axi.r.id, bad).eq(beats.o_payload),
            self.axi.r.resp.eq(Mux(bad, DECERR, OKAY)),
            self.mem.rvalid.eq(answered),
            self.mem.rdata.eq(data.word_select(asked[5:], 32)),
        ]

    def _data(self, m: Module, read_ports: list[Any], read_row: Signal) -> Signal:
        """The row that was read, from a register beside its bank."""
        bits = 8 * self.config.bus_bytes
        data = Signal(bits, reset_less=True)
        near = [Signal(bits, name=f"near{n}", reset_less=True) for n in range(len(read_ports))]
        m.d.sync += [register.eq(read_port.data) for register, read_port in zip(near, read_ports, strict=True)]
        if len(read_ports) == 1:
            m.d.sync += data.eq(near[0])
        else:
            # The bank is selected like the row: two cycles before its data is in its register.
            bank: Value = read_row[_IN_BANK:]
            for stage in range(2):
                moved = Signal(len(bank), name=f"bank{stage}", reset_less=True)
                m.d.sync += moved.eq(bank)
                bank = moved
            m.d.sync += data.eq(Array(near)[bank])
        return data

    def _bursts_written(
        self, m: Module, bridge: _Bridge, queues: dict[str, Queue], fields: dict[str, dict[str, Signal]]
    ) -> tuple[Signal, Signal, Signal]:
        """Receives write bursts and answers them. Returns: there is a beat, its row, the row lies outside."""
        writes, beats_in = queues["aw"], queues["w"]
        write_address, next_write_id = fields["aw"].values()
        writing, write_outside = Signal(), Signal()
        write_row = Signal(range(self._rows))
        beat = Signal()
        m.d.comb += [
            writes.o_ready.eq(~writing & ~self.axi.b.valid),
            beats_in.o_ready.eq(writing & ~bridge.writes),
            beat.eq(beats_in.o_valid & beats_in.o_ready),
        ]
        with m.If(self.axi.b.ready):
            m.d.sync += self.axi.b.valid.eq(0)
        with m.If(beat):
            m.d.sync += write_row.eq(write_row + 1)
            with m.If(fields["w"]["last"]):
                m.d.sync += [
                    writing.eq(0),
                    self.axi.b.valid.eq(1),
                    self.axi.b.resp.eq(Mux(write_outside, DECERR, OKAY)),
                ]
        with m.If(writes.o_valid & writes.o_ready):
            first = write_address[self._low :]
            m.d.sync += [writing.eq(1), write_row.eq(first), write_outside.eq(first >= self._rows)]
            m.d.sync += self.axi.b.id.eq(next_write_id)
        return beat, write_row, write_outside

    def _writes(
        self,
        m: Module,
        banks: list[tuple[Any, Any]],
        bridge: _Bridge,
        fields: dict[str, Signal],
        write_row: Signal,
        beat: Value,
    ) -> None:
        """Writes the data of the bridge or of a beat, through a register."""
        bus = self.config.bus_bytes
        now_row, now_data = Signal(range(self._rows), reset_less=True), Signal(8 * bus, reset_less=True)
        now_strobe = Signal(bus)
        m.d.sync += [
            now_row.eq(Mux(bridge.writes, bridge.row, write_row)),
            now_data.eq(Mux(bridge.writes, bridge.data.replicate(bus // 4), fields["data"])),
            now_strobe.eq(0),
        ]
        with m.If(bridge.writes):
            m.d.sync += now_strobe.eq(bridge.strobe << (bridge.word << 2))
        with m.Elif(beat):
            m.d.sync += now_strobe.eq(fields["strb"])
        for n, (_, write_port) in enumerate(banks):
            here = now_row[_IN_BANK:] == n if len(banks) > 1 else Const(1)
            m.d.comb += [
                write_port.addr.eq(now_row),
                write_port.data.eq(now_data),
                write_port.en.eq(now_strobe & here.replicate(bus)),
            ]
