"""The GEMM engine: loop nest, window, array, accumulation."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.accumulate import ACCUMULATE_STAGES, Accumulate
from hw.array import MacArray
from hw.loop_nest import LoopNest, report_range
from hw.ports import PC_BITS
from hw.queue import RegisteredQueue
from hw.scratchpads import bits_for
from hw.semaphores import SEMAPHORE_BITS
from hw.table import field, header, is_instruction
from hw.window import Window
from isa.config import NpuConfig
from isa.instructions import ADDRESS_BITS, BY_NAME, INSTRUCTION_BITS
from isa.timing import ACT_READ_CYCLES, WGT_READ_CYCLES, gemm_depth, gemm_signal

ADDRESSES = ("act", "wgt", "acc")
assert ACT_READ_CYCLES == WGT_READ_CYCLES


class Gemm(wiring.Component):
    """Runs GEMM and DEPTHWISE, one step per cycle, never stalling.

    Cycle 0: step, ACT and WGT reads. ACT_READ_CYCLES: read data. One more: window and weights registered. Then
    `array_stages`; ACC is read ACCUMULATE_STAGES before the accumulate stage. Signals are given `gemm_signal` cycles
    after the last step: the first step they allow comes in the cycle after the last ACC write.

    Ports:
        configure, start, word, pc: from the front end.  ready: to it.
        act_read, act_row, act_data; wgt_read, wgt_row, weights{o}: scratchpad reads.
        acc_*: to the ACC scratchpad (see `Accumulate`).
        give, signal0, signal1, give_pc: completed instruction.
        step: a step is made.  mac: it is a product, not GEMM_SYNC.
        running: an instruction is at work or in the pipeline.
        current_pc: instruction of the current step.
        range_error, range_row, range_pc: the step before named a row beyond its memory; there is none in this cycle.
        halt: make no more steps.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.array = MacArray(config)
        self.accumulate = Accumulate(config, self.array.sum_bits)
        columns, lanes = self.accumulate.columns, self.accumulate.lanes
        row = 8 * config.block_in
        super().__init__(
            {
                "configure": In(1),
                "start": In(1),
                "word": In(INSTRUCTION_BITS),
                "pc": In(PC_BITS),
                "ready": Out(1),
                "act_read": Out(1),
                "act_row": Out(ADDRESS_BITS),
                "act_data": In(row),
                "wgt_read": Out(1),
                "wgt_row": Out(ADDRESS_BITS),
                **{f"weights{o}": In(row) for o in range(config.block_out)},
                "acc_read": Out(1),
                "acc_read_row": Out(ADDRESS_BITS),
                **{f"acc_data{c}": In(32 * lanes) for c in range(columns)},
                "acc_write_mask": Out(columns),
                "acc_write_row": Out(ADDRESS_BITS),
                **{f"acc_write_data{c}": Out(32 * lanes) for c in range(columns)},
                "give": Out(1),
                "signal0": Out(SEMAPHORE_BITS),
                "signal1": Out(SEMAPHORE_BITS),
                "give_pc": Out(PC_BITS),
                "step": Out(1),
                "mac": Out(1),
                "running": Out(1),
                "current_pc": Out(PC_BITS),
                "range_error": Out(1),
                "range_row": Out(ADDRESS_BITS),
                "range_pc": Out(PC_BITS),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.nest = nest = LoopNest(c.gemm_loops, ADDRESSES, outer=("acc",))
        m.d.comb += nest.configure.eq(self.configure)
        for name in ("level", "count", *(f"{a}_stride" for a in ADDRESSES)):
            m.d.comb += getattr(nest, name).eq(field(self.word, "GEMM_LOOP", name))

        is_depthwise = is_instruction(self.word, "DEPTHWISE") if c.depthwise else C(0)
        active, depthwise, accumulate, fresh = Signal(), Signal(), Signal(), Signal()
        null = Signal()  # GEMM_SYNC: one step without reads
        last_step = null | nest.last
        slice_ = Signal(bits_for(c.dw_slices))
        # DEPTHWISE: steps of level k before the next emission, and whether there are none.
        start_at, between = [], []
        for k in range(2):
            start_at.append(Signal(BY_NAME["DEPTHWISE"].by_name[f"start{k}"].bits, name=f"start{k}"))
            between.append(Signal(BY_NAME["DEPTHWISE"].by_name[f"step{k}"].bits, name=f"between{k}"))
        wait = [Signal.like(s, name=f"wait{k}") for k, s in enumerate(start_at)]
        hit = [Signal(name=f"hit{k}") for k in range(2)]

        m.d.comb += [
            self.step.eq(active & ~self.halt & ~self.range_error),
            self.ready.eq(~active | last_step),
            self.mac.eq(self.step & ~null),
            nest.start.eq(self.ready),
            nest.step.eq(self.step),
        ]
        for a in ADDRESSES:
            base = Mux(is_depthwise, field(self.word, "DEPTHWISE", a), field(self.word, "GEMM", a))
            m.d.comb += getattr(nest, f"{a}_base").eq(base)
        levels = range(c.gemm_loops)
        reduce = field(self.word, "GEMM", "reduce")
        m.d.comb += [
            nest.inner.eq(Cat(~is_depthwise & (reduce > k) for k in levels)),
            nest.acc_gate.eq(Cat(~depthwise | hit[k] if k < 2 else C(1, 1) for k in levels)),
        ]

        with m.If(self.step):
            m.d.sync += fresh.eq(0)
            with m.If(last_step):
                m.d.sync += active.eq(0)
            for k in range(2):
                with m.If(nest.carry[k]):
                    m.d.sync += wait[k].eq(Mux(hit[k], between[k], wait[k] - 1))
                    m.d.sync += hit[k].eq(Mux(hit[k], between[k] == 0, wait[k] == 1))
                with m.Elif(nest.carry[k + 1 :].any()):
                    m.d.sync += [wait[k].eq(start_at[k]), hit[k].eq(start_at[k] == 0)]
        with m.If(self.start):
            m.d.sync += active.eq(1)
        with m.If(self.ready):  # also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                fresh.eq(1),
                depthwise.eq(is_depthwise),
                null.eq(is_instruction(self.word, "GEMM_SYNC")),
                accumulate.eq(
                    Mux(
                        is_depthwise,
                        field(self.word, "DEPTHWISE", "accumulate"),
                        field(self.word, "GEMM", "accumulate"),
                    )
                ),
                slice_.eq(field(self.word, "DEPTHWISE", "slice")),
                self.current_pc.eq(self.pc),
            ]
            for k in range(2):
                first = field(self.word, "DEPTHWISE", f"start{k}")
                m.d.sync += [
                    start_at[k].eq(first),
                    wait[k].eq(first),
                    hit[k].eq(first == 0),
                    between[k].eq(field(self.word, "DEPTHWISE", f"step{k}") - 1),
                ]

        emits = ~depthwise | (hit[0] & hit[1])
        columns = self.accumulate.columns
        column_bits = (columns - 1).bit_length()
        row, column = Signal(ADDRESS_BITS), Signal(bits_for(columns))
        m.d.comb += row.eq(nest.acc)
        if columns > 1:
            split = depthwise if c.block_out > c.block_in else 1
            m.d.comb += [row.eq(Mux(split, nest.acc >> column_bits, nest.acc)), column.eq(nest.acc[:column_bits])]
        # Rows beyond their memory: found in the step, reported in the next cycle.
        limits = [
            (nest.act, nest.act >= c.act_rows),
            (nest.wgt, emits & (nest.wgt >= c.wgt_tiles)),
            (nest.acc, emits & (row >= c.acc_rows * c.block_out // max(c.block_in, c.block_out))),
        ]
        report_range(m, self, self.mac, limits)
        m.d.comb += [
            # Also while halted: whatever waits for these reads is halted as well.
            self.act_read.eq(active & ~null),
            self.act_row.eq(nest.act),
            self.wgt_read.eq(self.act_read & emits),
            self.wgt_row.eq(nest.wgt),
        ]

        # Control travels with the data.
        depth, signal, read = gemm_depth(c), gemm_signal(c), ACT_READ_CYCLES
        values = {
            "valid": self.mac & emits,
            "end": self.step & last_step,
            "push": self.mac,
            "depthwise": depthwise,
            "clear": fresh,
            "first": nest.group_first,
            "last": nest.group_last,
            "accumulate": accumulate,
            "slice": slice_,
            "row": row,
            "column": column,
        }
        until = {
            "push": read,
            "clear": read,
            "slice": read + 1,
            "end": signal,
            "valid": depth - ACCUMULATE_STAGES,
            "depthwise": depth - ACCUMULATE_STAGES,
        }
        pipe: dict[str, list[Value]] = {}
        for name, value in values.items():
            stages: list[Value] = [value]
            for t in range(until.get(name, depth - ACCUMULATE_STAGES)):
                later = Signal(len(Value.cast(value)), name=f"{name}_{t + 1}", reset_less=name not in ("valid", "end"))
                m.d.sync += later.eq(stages[-1] & ~self.range_error if name == "valid" and t == 1 else stages[-1])
                stages.append(later)
            pipe[name] = stages

        m.submodules.window = window = Window(c)
        m.submodules.array = array = self.array
        m.submodules.accumulate = accumulator = self.accumulate
        m.d.comb += [
            window.push.eq(pipe["push"][read]),
            window.vector.eq(self.act_data),
            window.shift.eq(pipe["depthwise"][read]),
            window.clear.eq(pipe["depthwise"][read] & pipe["clear"][read]),
            array.valid.eq(pipe["valid"][read + 1]),
            array.slice.eq(pipe["slice"][read + 1]),
        ]
        m.d.comb += [getattr(array, f"slot{i}").eq(getattr(window, f"slot{i}")) for i in range(window.slots)]
        for o in range(c.block_out):
            weights = Signal(8 * c.block_in, name=f"tile{o}", reset_less=True)
            with m.If(pipe["valid"][read]):
                m.d.sync += weights.eq(getattr(self, f"weights{o}"))
            m.d.comb += [
                getattr(array, f"row{o}").eq(weights),
                getattr(accumulator, f"sum{o}").eq(getattr(array, f"sum{o}")),
            ]
        for name in ("valid", "first", "last", "accumulate", "depthwise", "row", "column"):
            m.d.comb += getattr(accumulator, name).eq(pipe[name][depth - ACCUMULATE_STAGES])
        m.d.comb += [
            self.acc_read.eq(accumulator.read),
            self.acc_read_row.eq(accumulator.read_row),
            self.acc_write_mask.eq(accumulator.write_mask),
            self.acc_write_row.eq(accumulator.write_row),
        ]
        for n in range(columns):
            m.d.comb += [
                getattr(accumulator, f"data{n}").eq(getattr(self, f"acc_data{n}")),
                getattr(self, f"acc_write_data{n}").eq(getattr(accumulator, f"write_data{n}")),
            ]

        # Instructions in the pipeline, in order.
        started, signals = Signal(), Signal(2 * SEMAPHORE_BITS, reset_less=True)
        m.d.sync += started.eq(self.start)
        m.d.sync += signals.eq(Cat(header(self.word, "signal0"), header(self.word, "signal1")))
        m.submodules.ends = ends = RegisteredQueue(2 * SEMAPHORE_BITS + PC_BITS, 16)
        m.d.comb += [
            ends.i_valid.eq(started),
            ends.i_payload.eq(Cat(signals, self.current_pc)),
            ends.o_ready.eq(self.give),
            self.give.eq(pipe["end"][signal]),
            Cat(self.signal0, self.signal1, self.give_pc).eq(ends.o_payload),
            self.running.eq(started | ends.o_valid),
        ]
        return m
