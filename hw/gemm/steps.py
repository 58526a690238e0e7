"""The steps of GEMM and DEPTHWISE: loop nest, addresses, range check."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import EngineControl, Fault, bits_for
from tilewright.hw.issue.loop_nest import LoopNest, report_range
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import field, is_instruction
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS, BY_NAME

ADDRESSES = ("act", "wgt", "acc")


class GemmSteps(wiring.Component):
    """Makes one step per cycle while an instruction is at work, and describes each step to the stages behind it.

    Parameters:
        columns: number of columns of ACC.

    Ports:
        control: instructions from the front end.
        current_pc: instruction of the step.
        step: a step is made.  mac: it is a product, not GEMM_SYNC.  end: it is the last of its instruction.
        act_read, act_row; wgt_read, wgt_row: rows of the step.
        twice, act_second (with `window_pairs`): it makes two pushes; the row of the second.
        emits: the product counts (DEPTHWISE makes none while the window fills).
        depthwise, accumulate, slice, delay (with delay lines): fields of the instruction.  clear: the step is its
        first.
        first, last: the step is the first, the last of a group.  row, column: physical place of the group in ACC.
        fault: the step before named a row beyond its memory; there is none in this cycle.
    """

    def __init__(self, config: NpuConfig, columns: int) -> None:
        self.config, self.columns = config, columns
        super().__init__(
            {
                "control": In(EngineControl(config, 1)),
                "current_pc": Out(pc_bits(config)),
                "step": Out(1),
                "mac": Out(1),
                "end": Out(1),
                "act_read": Out(1),
                "act_row": Out(ADDRESS_BITS),
                "wgt_read": Out(1),
                "wgt_row": Out(ADDRESS_BITS),
                "emits": Out(1),
                "depthwise": Out(1),
                "accumulate": Out(1),
                "slice": Out(bits_for(config.dw_slices)),
                **({"delay": Out(range(config.window_delay + 1))} if config.delay_lines else {}),
                **({"twice": Out(1), "act_second": Out(ADDRESS_BITS)} if config.window_pairs else {}),
                "clear": Out(1),
                "first": Out(1),
                "last": Out(1),
                "row": Out(ADDRESS_BITS),
                "column": Out(bits_for(columns)),
                "fault": Out(Fault(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        control, word = self.control, self.control.word
        pairs = bool(c.window_pairs)
        m.submodules.nest = nest = LoopNest(c.gemm_loops, ADDRESSES, ("acc",), c.address_bits, pairs=pairs)
        m.d.comb += nest.configure.eq(control.configure)
        for name in ("level", "count", *(f"{a}_stride" for a in ADDRESSES)):
            m.d.comb += getattr(nest, name).eq(field(word, "GEMM_LOOP", name))

        is_depthwise = is_instruction(word, "DEPTHWISE") if c.depthwise else C(0)
        active, fresh, depthwise = Signal(), self.clear, self.depthwise
        null = Signal()  # GEMM_SYNC: one step without reads
        last_step = null | nest.last
        # DEPTHWISE: steps of level k before the next emission, and whether there are none.
        start_at, between = [], []
        for k in range(2):
            start_at.append(Signal(BY_NAME["DEPTHWISE"].by_name[f"start{k}"].bits, name=f"start{k}"))
            between.append(Signal(BY_NAME["DEPTHWISE"].by_name[f"step{k}"].bits, name=f"between{k}"))
        wait = [Signal.like(s, name=f"wait{k}") for k, s in enumerate(start_at)]
        hit = [Signal(name=f"hit{k}") for k in range(2)]
        # Whether the step has an emission by this level: of two pushes the second, for the first has none. Then both as
        # they are when the level has advanced.
        emission, after = list(hit), []
        if pairs:
            emission[0] = Mux(nest.twice, wait[0] == 1, hit[0])
        for k in range(2):
            after.append((Mux(emission[k], between[k], wait[k] - 1), Mux(emission[k], between[k] == 0, wait[k] == 1)))
        if pairs:
            two = nest.twice & ~emission[0]
            after[0] = Mux(two, wait[0] - 2, after[0][0]), Mux(two, wait[0] == 2, after[0][1])

        m.d.comb += [
            self.step.eq(active & ~control.halt & ~self.fault.error),
            control.ready.eq(~active | last_step),
            self.mac.eq(self.step & ~null),
            nest.start.eq(control.ready),
            nest.step.eq(self.step),
        ]
        for a in ADDRESSES:
            base = Mux(is_depthwise, field(word, "DEPTHWISE", a), field(word, "GEMM", a))
            m.d.comb += getattr(nest, f"{a}_base").eq(base)
        levels = range(c.gemm_loops)
        reduce = field(word, "GEMM", "reduce")
        m.d.comb += [
            nest.inner.eq(Cat(~is_depthwise & (reduce > k) for k in levels)),
            nest.acc_gate.eq(Cat(~depthwise | emission[k] if k < 2 else C(1, 1) for k in levels)),
        ]

        with m.If(self.step):
            m.d.sync += fresh.eq(0)
            with m.If(last_step):
                m.d.sync += active.eq(0)
            for k in range(2):
                with m.If(nest.carry[k]):
                    m.d.sync += [wait[k].eq(after[k][0]), hit[k].eq(after[k][1])]
                with m.Elif(nest.carry[k + 1 :].any()):
                    m.d.sync += [wait[k].eq(start_at[k]), hit[k].eq(start_at[k] == 0)]
        with m.If(control.start):
            m.d.sync += active.eq(1)
        with m.If(control.ready):  # also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                fresh.eq(1),
                depthwise.eq(is_depthwise),
                null.eq(is_instruction(word, "GEMM_SYNC")),
                self.accumulate.eq(
                    Mux(
                        is_depthwise,
                        field(word, "DEPTHWISE", "accumulate"),
                        field(word, "GEMM", "accumulate"),
                    )
                ),
                self.slice.eq(field(word, "DEPTHWISE", "slice")),
                self.current_pc.eq(control.pc),
            ]
            if c.delay_lines:
                m.d.sync += self.delay.eq(field(word, "DEPTHWISE", "delay"))
            for k in range(2):
                first = field(word, "DEPTHWISE", f"start{k}")
                m.d.sync += [
                    start_at[k].eq(first),
                    wait[k].eq(first),
                    hit[k].eq(first == 0),
                    between[k].eq(field(word, "DEPTHWISE", f"step{k}") - 1),
                ]

        emits = self.emits
        m.d.comb += [emits.eq(~depthwise | (emission[0] & emission[1])), self.end.eq(self.step & last_step)]
        columns = self.columns
        column_bits = (columns - 1).bit_length()
        row, column = self.row, self.column
        m.d.comb += row.eq(nest.acc)
        if columns > 1:
            split = depthwise if c.block_out > c.dw_lanes else 1
            m.d.comb += [row.eq(Mux(split, nest.acc >> column_bits, nest.acc)), column.eq(nest.acc[:column_bits])]
        else:
            m.d.comb += column.eq(0)
        if pairs:
            following = [
                Mux(nest.carry[k], after[k][1], Mux(nest.carry[k + 1 :].any(), start_at[k] == 0, hit[k]))
                for k in range(2)
            ]
            second = self._pair(m, nest, ~Cat(following).all())
        # Rows beyond their memory: found in the step, reported in the next cycle.
        limits = [
            (nest.act, nest.act >= c.act_rows),
            *([(second, nest.twice & (second >= c.act_rows))] if pairs else []),
            (nest.wgt, emits & (nest.wgt >= c.wgt_tiles)),
            (nest.acc, emits & (row >= c.acc_rows * c.block_out // max(c.block_in, c.block_out))),
        ]
        report_range(m, self.fault, self.current_pc, self.mac, limits)
        m.d.comb += [
            self.first.eq(nest.group_first),
            self.last.eq(nest.group_last),
            # Also while halted: whatever waits for these reads is halted as well.
            self.act_read.eq(active & ~null),
            self.act_row.eq(nest.act),
            self.wgt_read.eq(self.act_read & emits),
            self.wgt_row.eq(nest.wgt),
        ]
        return m

    def _pair(self, m: Module, nest: LoopNest, silent: Value) -> Signal:
        """Makes pushes in pairs by the rule of `tilewright.isa.timing.window_pairs`. Returns the row of the second one.

        Args:
            silent: the push after those of this step has no emission.
        """
        c, control, word = self.config, self.control, self.control.word
        stride, allowed = Signal(nest.stride, reset_less=True), Signal()
        next_stride, next_allowed = Signal.like(stride, name="next_stride"), Signal()  # of the nest that is configured
        with m.If(control.configure & (field(word, "GEMM_LOOP", "level") == 0)):
            moves = field(word, "GEMM_LOOP", "act_stride")
            m.d.sync += next_stride.eq(moves)
            m.d.sync += next_allowed.eq(
                (moves.as_unsigned()[: (c.act_banks - 1).bit_length()] != 0)
                & (field(word, "GEMM_LOOP", "wgt_stride") == 0)
            )
        with m.If(control.ready):
            m.d.sync += [
                stride.eq(next_stride),
                allowed.eq(next_allowed & is_instruction(word, "DEPTHWISE") & (field(word, "DEPTHWISE", "delay") != 1)),
            ]
        second = Signal.like(nest.act, name="second")
        m.d.comb += [
            second.eq(nest.act + stride),
            nest.pair.eq(allowed & silent),
            self.twice.eq(nest.twice),
            self.act_second.eq(second),
        ]
        return second
