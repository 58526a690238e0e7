"""The STORE engine: configuration, reader, realigner, bursts, responses."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.axi_write import AxiWrite
from hw.bursts import OFFSET_BITS, BurstWalker, latch_region
from hw.ports import PC_BITS
from hw.semaphores import SEMAPHORE_BITS
from hw.store_data import StoreAligner, StoreReader, more_rows, rows_per_beat
from hw.table import field, header, is_instruction
from isa.config import ROW_BITS, NpuConfig
from isa.instructions import ADDRESS_BITS, INSTRUCTION_BITS, REGIONS

WRITE_PORTS = ("awvalid", "awaddr", "awlen", "wvalid", "wdata", "wstrb", "wlast", "bready")
WRITE_INPUTS = ("awready", "wready", "bvalid", "bresp")


class Store(wiring.Component):
    """Runs STORE. Reads of the next instruction follow while earlier ones still wait for the bus or their responses.

    Latency: first ACT read in the cycle after `start`; a row granted in cycle t is on W in cycle t+4 at the earliest.
    One beat per cycle, also where it holds several rows.

    Ports:
        configure, start, word, pc, ready: front end; `word` is there in the cycle before `start` too.
        region{r}_base, region{r}_size, region{r}_write: memory regions.
        act_read, act_row, act_more, act_grant, act_data: read port, see `ActivationScratchpad`.
        aw*, w*, b*: AXI.  idle: nothing in flight there.
        give, signal0, signal1, give_pc: completed instruction, the cycle after its last response.
        step, running, stalled: a beat is taken; any part at work; a burst waits.
        window_error, _address, _pc; range_error, _row, _pc; bus_error, _address, _pc: errors.
        halt: stop; bursts begun are completed without writing.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        tag_bits = 2 * SEMAPHORE_BITS + PC_BITS
        self.walker = BurstWalker(config, tag_bits)
        self.write = AxiWrite(config, tag_bits)
        regions: dict[str, object] = {}
        for r in range(REGIONS):
            regions |= {
                f"region{r}_base": In(config.axi_address_bits),
                f"region{r}_size": In(OFFSET_BITS),
                f"region{r}_write": In(1),
            }
        bus = {n: self.write.signature.members[n] for n in WRITE_PORTS + WRITE_INPUTS}
        super().__init__(
            {
                "configure": In(1),
                "start": In(1),
                "word": In(INSTRUCTION_BITS),
                "pc": In(PC_BITS),
                "ready": Out(1),
                **regions,
                "act_read": Out(1),
                "act_row": Out(ADDRESS_BITS),
                "act_more": Out(more_rows(config)),
                "act_grant": In(range(rows_per_beat(config) + 1)),
                "act_data": In(8 * config.block_in * rows_per_beat(config)),
                **bus,
                "idle": Out(1),
                "give": Out(1),
                "signal0": Out(SEMAPHORE_BITS),
                "signal1": Out(SEMAPHORE_BITS),
                "give_pc": Out(PC_BITS),
                "step": Out(1),
                "running": Out(1),
                "stalled": Out(1),
                "window_error": Out(1),
                "window_address": Out(config.axi_address_bits + 1),
                "window_pc": Out(PC_BITS),
                "range_error": Out(1),
                "range_row": Out(ADDRESS_BITS),
                "range_pc": Out(PC_BITS),
                "bus_error": Out(1),
                "bus_address": Out(config.axi_address_bits),
                "bus_pc": Out(PC_BITS),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.walker = walker = self.walker
        m.submodules.write = write = self.write
        m.submodules.reader = reader = StoreReader(c)
        m.submodules.aligner = aligner = StoreAligner(c)

        def run(name: str) -> Value:
            return field(self.word, "STORE", name)

        for k in range(2):
            count = Signal(16, init=1, name=f"count{k}")
            row_stride = Signal(signed(ROW_BITS), name=f"row_stride{k}")
            mem_stride = Signal(signed(OFFSET_BITS), name=f"mem_stride{k}")
            level = field(self.word, "STORE_DIM", "level")
            with m.If(self.configure & (level == k)):
                m.d.sync += [
                    count.eq(field(self.word, "STORE_DIM", "count")),
                    row_stride.eq(field(self.word, "STORE_DIM", "row_stride")),
                    mem_stride.eq(field(self.word, "STORE_DIM", "mem_stride")),
                ]
            m.d.comb += [
                getattr(walker, f"count{k}").eq(count),
                getattr(walker, f"mem_stride{k}").eq(mem_stride),
                getattr(reader, f"count{k}").eq(count),
                getattr(reader, f"row_stride{k}").eq(row_stride),
                getattr(reader, f"low_stride{k}").eq(mem_stride),
            ]
        # Shown for `hw.formal`.
        self.region = base, size, allowed = latch_region(m, self, run("region"), "write", walker.ready)

        sync, bad = Signal(), Signal()
        m.d.sync += sync.eq(is_instruction(self.word, "STORE_SYNC"))  # known in the cycle before the start
        pc_at = 2 * SEMAPHORE_BITS
        m.d.comb += [
            self.ready.eq(reader.ready & walker.ready),
            walker.start.eq(self.start),
            walker.null.eq(sync),
            walker.offset.eq(run("offset")),
            walker.bytes.eq(run("count") * c.block_in),
            walker.tag.eq(Cat(header(self.word, "signal0"), header(self.word, "signal1"), self.pc)),
            walker.base.eq(base),
            walker.size.eq(size),
            walker.allowed.eq(allowed),
            walker.halt.eq(self.halt),
            self.window_error.eq(walker.failed & ~write.in_burst),
            self.window_address.eq(walker.error_address),
            self.window_pc.eq(walker.error_tag[pc_at:]),
            reader.start.eq(self.start & ~sync),
            reader.row.eq(run("row")),
            reader.count.eq(run("count")),
            reader.low.eq(run("offset")),
            reader.pc.eq(self.pc),
            reader.halt.eq(self.halt),
            self.act_read.eq(reader.act_read),
            self.act_row.eq(reader.act_row),
            self.act_more.eq(reader.act_more),
            reader.act_grant.eq(self.act_grant),
            reader.act_data.eq(self.act_data),
            # A row is missing when the beats before it are sent and its burst is known to lie in the window.
            bad.eq(reader.o_valid & reader.o_bad),
            self.range_error.eq(bad & ~aligner.held & (write.in_burst | (walker.o_valid & ~walker.o_null))),
            self.range_row.eq(reader.bad_row),
            self.range_pc.eq(reader.bad_pc),
            aligner.i_valid.eq(reader.o_valid & ~bad),
            reader.o_ready.eq(aligner.i_ready),
            aligner.i_data.eq(reader.o_data),
            aligner.i_more.eq(reader.o_more),
            aligner.i_low.eq(reader.o_low),
            aligner.i_last.eq(reader.o_last),
            write.beat_valid.eq(aligner.o_valid),
            aligner.o_ready.eq(write.beat_ready),
            write.beat_data.eq(aligner.o_data),
            write.beat_strobe.eq(aligner.o_strobe),
            write.burst_valid.eq(walker.o_valid),
            walker.o_ready.eq(write.burst_ready),
            write.burst_address.eq(walker.o_address),
            write.burst_beats.eq(walker.o_beats),
            write.burst_last.eq(walker.o_last),
            write.burst_null.eq(walker.o_null),
            write.burst_tag.eq(walker.o_tag),
            write.halt.eq(self.halt),
            self.step.eq(write.step),
            self.stalled.eq(write.stalled),
            self.idle.eq(write.idle),
            self.bus_error.eq(write.error),
            self.bus_address.eq(write.error_address),
            self.bus_pc.eq(write.error_tag[pc_at:]),
            self.running.eq(reader.busy | aligner.busy | walker.busy | ~write.idle | self.give),
        ]
        m.d.sync += [self.give.eq(write.give), Cat(self.signal0, self.signal1, self.give_pc).eq(write.give_tag)]
        m.d.comb += [getattr(self, n).eq(getattr(write, n)) for n in WRITE_PORTS]
        m.d.comb += [getattr(write, n).eq(getattr(self, n)) for n in WRITE_INPUTS]
        return m
