"""The LOAD engine: configuration, address half, and the queue to its data half."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Fault, ReadPort, RegionAccess
from tilewright.hw.issue.engine import EngineShell
from tilewright.hw.memory.load_layouts import LoadWrite, descriptor_layout, stride_shape
from tilewright.hw.memory.weight_codes import CodedWrite
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.parts.queue import Queue
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import field, header, is_instruction
from tilewright.hw.transfer.bursts import BurstWalker, latch_region, run_bits
from tilewright.hw.transfer.load_data import LoadData
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME, Engine, Memory
from tilewright.isa.timing import LOAD_DESCRIPTORS


class _Box(NamedTuple):
    """The registers of the box: count, stride in rows and stride in bytes of each level, as LOAD_DIM sets them."""

    counts: list[Signal]
    row_stride: list[Signal]
    mem_stride: list[Signal]


class _Head(NamedTuple):
    """Properties of the instruction at the head of the queue, registered.

    Attributes:
        no_rows: its box has no rows, padding included.
        empty: it reads no bytes.
        sync: it has no box.
        one, only: its box is one line; one line of one part.
        coded: it is LOAD_CODED.
        bytes: length of a run in bytes.
    """

    no_rows: Signal
    empty: Signal
    sync: Signal
    one: Signal
    only: Signal
    coded: Signal
    bytes: Value


class Load(EngineShell):
    """Runs LOAD. The address half asks for the bursts of an instruction while the data half still takes the beats of
    the ones before; up to LOAD_DESCRIPTORS instructions wait between them.

    Latency: first burst request 4 cycles after `start`; a chunk is written to its scratchpad the cycle after its (last)
    beat is taken; signals are given in the cycle after the last write.

    Ports:
        control, retire, activity: see `EngineShell`; it stalls where the data half waits.
        region: base, size and read permission of a memory region.
        read: bursts and their beats.
        write: to the scratchpads.
        operand_fault: the box at `start` has no rows.
        window_fault: a run leaves its region; found when its first beat is due.
        bus_fault: a beat came with an error.
        range_fault: a row beyond its memory.
        codes, code_fault: see `LoadData`.

    Probes:
        region: base, size and permission of the region of the box that is walked.
        box, pad, head: registers of LOAD_DIM and LOAD_PAD; what is known of the head of the queue, see `_Head`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.walker = BurstWalker(config, pc_bits(config), run_bits(max(target.row_bytes(config) for target in Memory)))
        self.data = LoadData(config)
        super().__init__(
            config,
            Engine.LOAD,
            {
                "region": Out(RegionAccess(config)),
                "read": Out(ReadPort(config, may_wait=True)),
                "write": Out(LoadWrite(config)),
                "operand_fault": Out(Fault(config)),
                "window_fault": Out(Fault(config, config.axi_address_bits + 1)),
                "bus_fault": Out(Fault(config, config.axi_address_bits)),
                "range_fault": Out(Fault(config)),
                **({"codes": Out(CodedWrite(config)), "code_fault": Out(Fault(config))} if config.weight_codes else {}),
            },
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c, control = self.config, self.control
        m.submodules.walker = walker = self.walker
        m.submodules.data = half = self.data
        layout = descriptor_layout(c)
        m.submodules.descriptors = descriptors = Queue(layout.size, LOAD_DESCRIPTORS)
        # Ready only if `descriptors` has room for one more, whatever happened in the cycle before.
        ready = Signal(init=1)
        m.d.sync += ready.eq(walker.ready_next & (descriptors.level < LOAD_DESCRIPTORS - 1))

        box, pad = self._box(m), self.registers(m, "LOAD_PAD")
        head = self._head(m, box, pad)
        begin = control.start & (head.sync | ~head.no_rows)
        self.kept_region = latch_region(m, self.region, self.run("region"), walker.ready)
        m.d.comb += [
            self.operand_fault.error.eq(control.start & ~head.sync & head.no_rows),
            self.operand_fault.pc.eq(control.pc),
            self.operand_fault.address.eq(0),
            control.ready.eq(ready),
        ]
        self._walk(m, box, head, begin)
        m.d.comb += descriptors.i_valid.eq(begin)
        self._describe(m, data.View(layout, descriptors.i_payload), box, pad, head)
        m.d.comb += [
            half.i_valid.eq(descriptors.o_valid),
            half.i_payload.eq(descriptors.o_payload),
            descriptors.o_ready.eq(half.i_ready),
        ]
        self._data_half(m)
        m.d.comb += self.activity.running.eq(descriptors.o_valid | half.busy | walker.busy | self.retire.give)
        # The data half knows where an instruction ends; `ready` has looked at the room.
        unread(m, walker.o_last, walker.o_null, walker.o_tag, descriptors.i_ready)
        declare_probes(self, region=self.kept_region, box=box, pad=pad, head=head)
        return m

    def _box(self, m: Module) -> _Box:
        """Makes the registers of LOAD_DIM."""
        c, control = self.config, self.control
        count, row_stride, mem_stride = [], [], []
        for k in range(2):
            select = self.configures("LOAD_DIM")
            select = select & (field(control.word, "LOAD_DIM", "level") == k)
            count.append(Signal(16, init=1, name=f"count{k}"))
            row_stride.append(Signal(stride_shape(c), name=f"row_stride{k}"))
            mem_stride.append(Signal(signed(c.offset_bits), name=f"mem_stride{k}"))
            with m.If(select):
                m.d.sync += [
                    count[k].eq(field(control.word, "LOAD_DIM", "count")),
                    row_stride[k].eq(field(control.word, "LOAD_DIM", "row_stride")),
                    mem_stride[k].eq(field(control.word, "LOAD_DIM", "mem_stride")),
                ]
        return _Box(count, row_stride, mem_stride)

    def _head(self, m: Module, box: _Box, pad: dict[str, Signal]) -> _Head:
        """Predecodes the instruction at the head of the queue, where it is at least one cycle before its start."""
        c, control, run, count = self.config, self.control, self.run, box.counts
        no_rows, empty, sync, one, only = Signal(), Signal(), Signal(), Signal(), Signal()
        shift = min((t.row_bytes(c) - 1).bit_length() for t in Memory)  # of the bytes of any row
        if c.weight_codes:
            shift = min(shift, (c.bus_bytes - 1).bit_length())  # and of a beat
        bytes_ = Signal(self.walker.run_bits - shift)
        wide = Cat(pad["left"], run("count"), pad["right"]).any()
        high = Cat(pad["top"], count[0], pad["bottom"]).any()
        lines = [pad["top"], count[0], pad["bottom"]]
        one_line = ~Cat(n[1:] for n in lines).any() & (reduce(add, (n[0] for n in lines)) == 1)  # their sum is
        one_part = reduce(add, [pad["left"] != 0, run("count") != 0, pad["right"] != 0]) == 1
        is_sync = is_instruction(control.word, "LOAD_SYNC")
        m.d.sync += [
            one.eq(one_line),
            only.eq(is_sync | (one_line & one_part & (count[1] == 1))),
            no_rows.eq(~wide | ~high | (count[1] == 0)),
            empty.eq((run("count") == 0) | (count[0] == 0)),
            sync.eq(is_sync),
        ]
        with m.Switch(run("target")):
            for target in Memory:
                with m.Case(target):
                    m.d.sync += bytes_.eq(run("count") * (target.row_bytes(c) >> shift))
        if c.packed_weights:
            for name in ("region", "offset", "target", "row", "count"):
                assert BY_NAME["LOAD"].by_name[name].low == BY_NAME["LOAD_PACKED"].by_name[name].low
            with m.If(is_instruction(control.word, "LOAD_PACKED")):
                m.d.sync += bytes_.eq(run("count") * (c.packed_tile_bytes >> shift))
        coded = Signal()
        if c.weight_codes:
            # LOAD_CODED is one run, and for the data half one segment.
            for name in ("region", "offset", "row", "count"):
                assert BY_NAME["LOAD"].by_name[name].low == BY_NAME["LOAD_CODED"].by_name[name].low
            is_coded = is_instruction(control.word, "LOAD_CODED")
            beats = field(control.word, "LOAD_CODED", "beats")
            m.d.sync += coded.eq(is_coded)
            with m.If(is_coded):
                m.d.sync += [
                    bytes_.eq(beats << ((c.bus_bytes - 1).bit_length() - shift)),
                    sync.eq(1),
                    only.eq(1),
                    empty.eq(beats == 0),
                ]
        return _Head(no_rows, empty, sync, one, only, coded, bytes_ << shift)

    def _walk(self, m: Module, box: _Box, head: _Head, begin: Value) -> None:
        """Drives the address half: bursts of the instruction, window checks, reads."""
        c, control, run, walker = self.config, self.control, self.run, self.walker
        base, size, allowed = self.kept_region
        starts = ~head.sync | head.coded if c.weight_codes else ~head.sync
        m.d.comb += [
            walker.start.eq(begin & starts & ~head.empty),
            walker.offset.eq(run("offset")),
            walker.bytes.eq(head.bytes),
            walker.count0.eq(box.counts[0]),
            walker.count1.eq(box.counts[1]),
            walker.mem_stride0.eq(box.mem_stride[0]),
            walker.mem_stride1.eq(box.mem_stride[1]),
            walker.tag.eq(control.pc),
            walker.base.eq(base),
            walker.size.eq(size),
            walker.allowed.eq(allowed),
            walker.halt.eq(control.halt),
            walker.null.eq(0),
            self.window_fault.error.eq(walker.failed & self.data.beat_ready & self.read.idle),
            self.window_fault.address.eq(walker.error_address),
            self.window_fault.pc.eq(walker.error_tag),
            self.read.valid.eq(walker.o_valid),
            walker.o_ready.eq(self.read.ready),
            self.read.address.eq(walker.o_address),
            self.read.beats.eq(walker.o_beats),
        ]
        if c.weight_codes:
            with m.If(head.coded):
                m.d.comb += [
                    walker.offset[: (c.bus_bytes - 1).bit_length()].eq(0),
                    walker.count0.eq(1),
                    walker.count1.eq(1),
                ]

    def _describe(self, m: Module, entry: Any, box: _Box, pad: dict[str, Signal], head: _Head) -> None:
        """Fills the descriptor of an instruction for the data half."""
        c, control, run = self.config, self.control, self.run
        m.d.comb += [
            entry.null.eq(head.sync),
            entry.one.eq(head.one),
            entry.only.eq(head.only),
            entry.target.eq(run("target")),
            entry.row.eq(run("row")),
            entry.count.eq(run("count")),
            entry.low.eq(run("offset")),
            entry.count0.eq(box.counts[0]),
            entry.count1.eq(box.counts[1]),
            entry.row_stride0.eq(box.row_stride[0]),
            entry.row_stride1.eq(box.row_stride[1]),
            entry.low_stride0.eq(box.mem_stride[0]),
            entry.low_stride1.eq(box.mem_stride[1]),
            entry.signal0.eq(header(control.word, "signal0")),
            entry.signal1.eq(header(control.word, "signal1")),
            entry.pc.eq(control.pc),
        ]
        m.d.comb += [entry[n].eq(s) for n, s in pad.items()]
        if c.packed_weights:
            m.d.comb += entry.packed.eq(is_instruction(control.word, "LOAD_PACKED"))
        if c.weight_codes:
            m.d.comb += [
                entry.coded.eq(head.coded),
                entry.mode.eq(field(control.word, "LOAD_CODED", "mode")),
                entry.beats.eq(field(control.word, "LOAD_CODED", "beats")),
            ]
            with m.If(head.coded):
                m.d.comb += entry.target.eq(Memory.WGT)

    def _data_half(self, m: Module) -> None:
        """Connects the data half to the ports of the engine."""
        control, half = self.control, self.data
        if self.config.weight_codes:
            wiring.connect(m, half.codes, wiring.flipped(self.codes))
            wiring.connect(m, half.code_fault, wiring.flipped(self.code_fault))
        wiring.connect(m, half.write, wiring.flipped(self.write))
        wiring.connect(m, half.range_fault, wiring.flipped(self.range_fault))
        retired = half.retire
        m.d.sync += [
            self.retire.give.eq(retired.give),
            self.retire.signal0.eq(retired.signal0),
            self.retire.signal1.eq(retired.signal1),
            self.retire.pc.eq(retired.pc),
        ]
        m.d.comb += [
            half.beat.eq(self.read.beat),
            half.beat_data.eq(self.read.data),
            half.halt.eq(control.halt),
            self.read.beat_ready.eq(half.beat_ready),
            self.bus_fault.error.eq(self.read.beat & half.beat_ready & self.read.bad),
            self.bus_fault.pc.eq(half.current_pc),
            self.bus_fault.address.eq(self.read.beat_address),
            self.activity.step.eq(half.step),
            self.activity.stalled.eq(half.stalled),
        ]
