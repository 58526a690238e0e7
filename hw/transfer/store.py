"""The STORE engine: configuration, reader, realigner, bursts, responses."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import SEMAPHORE_BITS, Axi4, Fault, RegionAccess
from tilewright.hw.issue.engine import EngineShell
from tilewright.hw.memory.axi_write import AxiWrite
from tilewright.hw.memory.load_layouts import rows_per_beat, stride_shape
from tilewright.hw.memory.scratchpad_ports import RowsRead
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import field, is_instruction
from tilewright.hw.transfer.bursts import BurstWalker, latch_region, run_bits
from tilewright.hw.transfer.store_data import StoreAligner, StoreReader
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Engine


class Store(EngineShell):
    """Runs STORE. Reads of the next instruction follow while earlier ones still wait for the bus or their responses.

    Latency: first ACT read in the cycle after `start`; a row granted in cycle t is on W in cycle t+4 at the earliest.
    One beat per cycle, also where it holds several rows.

    Ports:
        control, retire, activity: see `EngineShell`. It retires in the cycle after the last response, stalls where a
            burst waits; after a halt, bursts begun are completed without writing.
        region: base, size and write permission of a memory region.
        act: read port.
        aw, w, b: AXI.  idle: nothing in flight there.
        window_fault, range_fault, bus_fault: a run leaves its region; a row does not exist; an error as response.

    Probes:
        region: base, size and permission of the region of the box that is walked.
    """

    def __init__(self, config: NpuConfig) -> None:
        tag_bits = 2 * SEMAPHORE_BITS + pc_bits(config)
        self.walker = BurstWalker(config, tag_bits, run_bits(config.block_in))
        self.write = AxiWrite(config, tag_bits)
        axi = Axi4(config).members
        super().__init__(
            config,
            Engine.STORE,
            {
                "region": Out(RegionAccess(config)),
                "act": Out(RowsRead(8 * config.block_in, rows_per_beat(config))),
                "aw": axi["aw"],
                "w": axi["w"],
                "b": axi["b"],
                "idle": Out(1),
                "window_fault": Out(Fault(config, config.axi_address_bits + 1)),
                "range_fault": Out(Fault(config)),
                "bus_fault": Out(Fault(config, config.axi_address_bits)),
            },
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c, control, run = self.config, self.control, self.run
        m.submodules.walker = walker = self.walker
        m.submodules.write = write = self.write
        m.submodules.reader = reader = StoreReader(c)
        m.submodules.aligner = aligner = StoreAligner(c)

        for k in range(2):
            count = Signal(16, init=1, name=f"count{k}")
            row_stride = Signal(stride_shape(c), name=f"row_stride{k}")
            mem_stride = Signal(signed(c.offset_bits), name=f"mem_stride{k}")
            level = field(control.word, "STORE_DIM", "level")
            with m.If(self.configures("STORE_DIM") & (level == k)):
                m.d.sync += [
                    count.eq(field(control.word, "STORE_DIM", "count")),
                    row_stride.eq(field(control.word, "STORE_DIM", "row_stride")),
                    mem_stride.eq(field(control.word, "STORE_DIM", "mem_stride")),
                ]
            m.d.comb += [
                getattr(walker, f"count{k}").eq(count),
                getattr(walker, f"mem_stride{k}").eq(mem_stride),
                getattr(reader, f"count{k}").eq(count),
                getattr(reader, f"row_stride{k}").eq(row_stride),
                getattr(reader, f"low_stride{k}").eq(mem_stride),
            ]
        base, size, allowed = latch_region(m, self.region, run("region"), walker.ready)

        sync, bad = Signal(), Signal()
        m.d.sync += sync.eq(is_instruction(control.word, "STORE_SYNC"))  # known in the cycle before the start
        pc_at = 2 * SEMAPHORE_BITS
        m.d.comb += [
            control.ready.eq(reader.ready & walker.ready),
            walker.start.eq(control.start),
            walker.null.eq(sync),
            walker.offset.eq(run("offset")),
            walker.bytes.eq(run("count") * c.block_in),
            walker.tag.eq(Cat(self.signals(), control.pc)),
            walker.base.eq(base),
            walker.size.eq(size),
            walker.allowed.eq(allowed),
            walker.halt.eq(control.halt),
            self.window_fault.error.eq(walker.failed & ~write.in_burst),
            self.window_fault.address.eq(walker.error_address),
            self.window_fault.pc.eq(walker.error_tag[pc_at:]),
            reader.start.eq(control.start & ~sync),
            reader.row.eq(run("row")),
            reader.count.eq(run("count")),
            reader.low.eq(run("offset")),
            reader.pc.eq(control.pc),
            reader.halt.eq(control.halt),
            # A row is missing when the beats before it are sent and its burst is known to lie in the window.
            bad.eq(reader.fault.error),
            self.range_fault.error.eq(bad & ~aligner.held & (write.in_burst | (walker.o_valid & ~walker.o_null))),
            self.range_fault.address.eq(reader.fault.address),
            self.range_fault.pc.eq(reader.fault.pc),
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
            write.halt.eq(control.halt),
            self.activity.step.eq(write.step),
            self.activity.stalled.eq(write.stalled),
            self.idle.eq(write.idle),
            self.bus_fault.error.eq(write.error),
            self.bus_fault.address.eq(write.error_address),
            self.bus_fault.pc.eq(write.error_tag[pc_at:]),
            self.activity.running.eq(reader.busy | aligner.busy | walker.busy | ~write.idle | self.retire.give),
        ]
        retire = self.retire
        m.d.sync += [retire.give.eq(write.give), Cat(retire.signal0, retire.signal1, retire.pc).eq(write.give_tag)]
        wiring.connect(m, reader.act, wiring.flipped(self.act))
        for channel in ("aw", "w", "b"):
            wiring.connect(m, getattr(write, channel), wiring.flipped(getattr(self, channel)))
        unread(m, walker.ready_next)  # only LOAD looks ahead
        declare_probes(self, region=(base, size, allowed))
        return m
