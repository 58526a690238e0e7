"""The LOAD engine: configuration, address half, and the queue to its data half."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.bursts import OFFSET_BITS, RUN_BITS, BurstWalker, latch_region
from hw.load_data import LoadData, descriptor_layout
from hw.ports import PC_BITS
from hw.queue import Queue
from hw.semaphores import SEMAPHORE_BITS
from hw.table import field, header, instructions_of, is_instruction
from isa.config import ROW_BITS, NpuConfig
from isa.instructions import ADDRESS_BITS, BY_NAME, INSTRUCTION_BITS, REGIONS, Engine, Memory
from isa.timing import LOAD_DESCRIPTORS

CONFIGURING = [i.name for i in instructions_of(Engine.LOAD, configures=True)]


class Load(wiring.Component):
    """Runs LOAD. The address half asks for the bursts of an instruction while the data half still takes the beats of
    the ones before; up to LOAD_DESCRIPTORS instructions wait between them.

    Latency: first burst request 4 cycles after `start`; a chunk is written to its scratchpad the cycle after its (last)
    beat is taken; signals are given in the cycle after the last write.

    Ports:
        configure, start, word, pc, ready: front end; `word` is there in the cycle before `start` too.
        region{r}_base, region{r}_size, region{r}_read: memory regions.
        request_*: bursts.  beat, beat_ready, beat_data: data of this engine's bursts.
        bus_idle: none of them in flight.
        write_*: see `LoadData`.
        give, signal0, signal1, give_pc: completed instruction.
        step, running, current_pc, stalled: data half moves; any part at work; data half's instruction; it waits.
        operand_error: the box at `start` has no rows.
        window_error, window_address, window_pc: a run leaves its region; found when its first beat is due.
        range_error, range_row, range_pc: a row beyond its memory.
        halt: stop.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.walker = BurstWalker(config, PC_BITS)
        self.data = LoadData(config)
        regions: dict[str, object] = {}
        for r in range(REGIONS):
            regions |= {
                f"region{r}_base": In(config.axi_address_bits),
                f"region{r}_size": In(OFFSET_BITS),
                f"region{r}_read": In(1),
            }
        super().__init__(
            {
                "configure": In(len(CONFIGURING)),
                "start": In(1),
                "word": In(INSTRUCTION_BITS),
                "pc": In(PC_BITS),
                "ready": Out(1),
                **regions,
                "request_valid": Out(1),
                "request_ready": In(1),
                "request_address": Out(config.axi_address_bits),
                "request_beats": Out(self.walker.beat_bits),
                "beat": In(1),
                "beat_ready": Out(1),
                "beat_data": In(config.axi_data_bits),
                "bus_idle": In(1),
                **self.data.write_members(),
                "give": Out(1),
                "signal0": Out(SEMAPHORE_BITS),
                "signal1": Out(SEMAPHORE_BITS),
                "give_pc": Out(PC_BITS),
                "step": Out(1),
                "running": Out(1),
                "current_pc": Out(PC_BITS),
                "stalled": Out(1),
                "operand_error": Out(1),
                "window_error": Out(1),
                "window_address": Out(config.axi_address_bits + 1),
                "window_pc": Out(PC_BITS),
                "range_error": Out(1),
                "range_row": Out(ADDRESS_BITS),
                "range_pc": Out(PC_BITS),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.walker = walker = self.walker
        m.submodules.data = half = self.data
        layout = descriptor_layout(c)
        m.submodules.descriptors = descriptors = Queue(layout.size, LOAD_DESCRIPTORS)
        # Ready only if `descriptors` has room for one more, whatever happened in the cycle before.
        ready = Signal(init=1)
        m.d.sync += ready.eq(walker.ready_next & (descriptors.level < LOAD_DESCRIPTORS - 1))

        def run(name: str) -> Value:
            return field(self.word, "LOAD", name)

        # Configuration registers.
        count, row_stride, mem_stride = [], [], []
        for k in range(2):
            select = self.configure[CONFIGURING.index("LOAD_DIM")]
            select = select & (field(self.word, "LOAD_DIM", "level") == k)
            count.append(Signal(16, init=1, name=f"count{k}"))
            row_stride.append(Signal(signed(ROW_BITS), name=f"row_stride{k}"))
            mem_stride.append(Signal(signed(OFFSET_BITS), name=f"mem_stride{k}"))
            with m.If(select):
                m.d.sync += [
                    count[k].eq(field(self.word, "LOAD_DIM", "count")),
                    row_stride[k].eq(field(self.word, "LOAD_DIM", "row_stride")),
                    mem_stride[k].eq(field(self.word, "LOAD_DIM", "mem_stride")),
                ]
        pad = {f.name: Signal(f.bits, name=f.name) for f in BY_NAME["LOAD_PAD"].fields}
        with m.If(self.configure[CONFIGURING.index("LOAD_PAD")]):
            m.d.sync += [s.eq(field(self.word, "LOAD_PAD", n)) for n, s in pad.items()]

        # An instruction is at the head of the queue at least one cycle before its start; its fields are prepared then.
        no_rows, empty, sync = Signal(), Signal(), Signal()
        shift = min((t.row_bytes(c) - 1).bit_length() for t in Memory)  # of the bytes of any row
        bytes_ = Signal(RUN_BITS - shift)
        wide = Cat(pad["left"], run("count"), pad["right"]).any()
        high = Cat(pad["top"], count[0], pad["bottom"]).any()
        m.d.sync += [
            no_rows.eq(~wide | ~high | (count[1] == 0)),
            empty.eq((run("count") == 0) | (count[0] == 0)),
            sync.eq(is_instruction(self.word, "LOAD_SYNC")),
        ]
        with m.Switch(run("target")):
            for target in Memory:
                with m.Case(target):
                    m.d.sync += bytes_.eq(run("count") * (target.row_bytes(c) >> shift))
        # Shown for `hw.formal`.
        self.region = base, size, allowed = latch_region(m, self, run("region"), "read", walker.ready)

        begin = self.start & (sync | ~no_rows)
        m.d.comb += [
            self.operand_error.eq(self.start & ~sync & no_rows),
            self.ready.eq(ready),
            walker.start.eq(begin & ~sync & ~empty),
            walker.offset.eq(run("offset")),
            walker.bytes.eq(bytes_ << shift),
            walker.count0.eq(count[0]),
            walker.count1.eq(count[1]),
            walker.mem_stride0.eq(mem_stride[0]),
            walker.mem_stride1.eq(mem_stride[1]),
            walker.tag.eq(self.pc),
            walker.base.eq(base),
            walker.size.eq(size),
            walker.allowed.eq(allowed),
            walker.halt.eq(self.halt),
            self.window_error.eq(walker.failed & half.beat_ready & self.bus_idle),
            self.window_address.eq(walker.error_address),
            self.window_pc.eq(walker.error_tag),
            self.request_valid.eq(walker.o_valid),
            walker.o_ready.eq(self.request_ready),
            self.request_address.eq(walker.o_address),
            self.request_beats.eq(walker.o_beats),
        ]

        entry = data.View(layout, descriptors.i_payload)
        m.d.comb += [
            descriptors.i_valid.eq(begin),
            entry.null.eq(sync),
            entry.target.eq(run("target")),
            entry.row.eq(run("row")),
            entry.count.eq(run("count")),
            entry.low.eq(run("offset")),
            entry.count0.eq(count[0]),
            entry.count1.eq(count[1]),
            entry.row_stride0.eq(row_stride[0]),
            entry.row_stride1.eq(row_stride[1]),
            entry.low_stride0.eq(mem_stride[0]),
            entry.low_stride1.eq(mem_stride[1]),
            entry.signal0.eq(header(self.word, "signal0")),
            entry.signal1.eq(header(self.word, "signal1")),
            entry.pc.eq(self.pc),
            half.i_valid.eq(descriptors.o_valid),
            half.i_payload.eq(descriptors.o_payload),
            descriptors.o_ready.eq(half.i_ready),
        ]
        m.d.comb += [entry[n].eq(s) for n, s in pad.items()]

        for name in ("beat", "beat_data", "write_grant", "halt"):
            m.d.comb += getattr(half, name).eq(getattr(self, name))
        for name in ("give", "signal0", "signal1", "give_pc"):
            m.d.sync += getattr(self, name).eq(getattr(half, name))
        for name in ("beat_ready", "step", "current_pc", "stalled"):
            m.d.comb += getattr(self, name).eq(getattr(half, name))
        for name in self.data.write_members():
            if name != "write_grant":
                m.d.comb += getattr(self, name).eq(getattr(half, name))
        m.d.comb += [
            self.range_error.eq(half.range_error),
            self.range_row.eq(half.range_row),
            self.range_pc.eq(half.give_pc),
            self.running.eq(descriptors.o_valid | half.busy | walker.busy | self.give),
        ]
        return m
