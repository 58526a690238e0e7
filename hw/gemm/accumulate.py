"""The accumulate stage of GEMM, with forwarding of rows still on their way to ACC."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import bits_for
from tilewright.hw.memory.scratchpad_ports import ColumnsWrite, ScratchpadRead
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS

#: Cycles from the control inputs to the stage that adds.
ACCUMULATE_STAGES = 2


class Accumulate(wiring.Component):
    """Sums the products of a group, starting from 0 or from an ACC row, and writes the row.

    An ACC row read in cycle t does not show the writes of cycles t and later, so a group takes instead: the row written
    in t (kept one cycle), in t+1 (in the sum register then), or the sum that is complete just before it.

    Latency: control enters in cycle t, `sums` in t + ACCUMULATE_STAGES, a complete row is written one cycle later.

    Ports:
        valid, first, last: a product of a group, its first, its last.
        accumulate: the group starts from the ACC row.
        depthwise: the row is one column also where a row of GEMM has several.
        row, column: physical ACC row and column of the group.
        sums: products of the array.
        read, write: ports of ACC.
    """

    def __init__(self, config: NpuConfig, sum_bits: int) -> None:
        self.config = config
        self.lanes = config.dw_lanes
        self.columns = max(config.block_in, config.block_out) // self.lanes
        #: Columns a GEMM row covers.
        self.groups = config.block_out // self.lanes
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "accumulate": In(1),
                "depthwise": In(1),
                "row": In(ADDRESS_BITS),
                "column": In(bits_for(self.columns)),
                "sums": In(signed(sum_bits)).array(config.block_out),
                "read": Out(ScratchpadRead(Out(32 * self.lanes).array(self.columns))),
                "write": Out(ColumnsWrite(self.columns, 32 * self.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        columns, groups, width = range(self.columns), range(self.groups), 32 * self.lanes

        # Control of the three cycles; `mask` is the set of columns the group covers.
        mask0 = Signal(self.columns)
        single = Mux(self.depthwise, 1 << self.column, (1 << self.columns) - 1)
        m.d.comb += mask0.eq(single if self.groups > 1 else 1 << self.column)
        flags = ("valid", "first", "last", "loads", "depthwise")
        inputs = {
            "valid": self.valid,
            "first": self.first,
            "last": self.last,
            "loads": self.valid & self.first & self.accumulate,
            "depthwise": self.depthwise,
            "row": self.row,
            "column": self.column,
            "mask": mask0,
        }
        stage1 = {k: Signal(len(v) if k not in flags else 1, name=f"{k}1") for k, v in inputs.items()}
        stage2 = {k: Signal.like(v, name=f"{k}2") for k, v in stage1.items()}
        m.d.comb += [self.read.valid.eq(inputs["loads"]), self.read.row.eq(self.row)]
        m.d.sync += [stage1[k].eq(v) for k, v in inputs.items()]
        m.d.sync += [stage2[k].eq(v) for k, v in stage1.items()]

        # The row being written in this cycle, and the one written in the cycle before.
        sums = [Signal(width, name=f"group{g}", reset_less=True) for g in groups]
        written_depthwise = Signal()
        for c in columns:
            data = sums[0]
            if self.groups > 1 and c:
                data = Mux(written_depthwise, sums[0], sums[c])
            m.d.comb += self.write.data[c].eq(data)
        before = [Signal(width, name=f"before{g}", reset_less=True) for g in columns[: max(1, self.groups)]]
        complete = stage2["valid"] & stage2["last"]
        m.d.sync += self.write.mask.eq(Mux(complete, stage2["mask"], 0))
        with m.If(complete):
            m.d.sync += [self.write.row.eq(stage2["row"]), written_depthwise.eq(stage2["depthwise"])]
        with m.If(self.write.mask.any()):
            m.d.sync += [b.eq(self.write.data[g]) for g, b in enumerate(before)]

        # Stage 1: ACC data is there; columns written since are replaced, then what the group needs is selected.
        # Which columns to replace was computed in the cycle before, so that one bit per column chooses here.
        now_hit, before_hit = (Signal(self.columns, name=n, reset_less=True) for n in ("now_hit", "before_hit"))
        m.d.sync += [
            now_hit.eq(Mux(complete & (stage2["row"] == self.row), stage2["mask"], 0)),
            before_hit.eq(Mux(self.write.row == self.row, self.write.mask, 0)),
        ]
        values = []
        for c in columns:
            value = Signal(width, name=f"value{c}")
            m.d.comb += value.eq(self.read.data[c])
            with m.If(before_hit[c]):
                m.d.comb += value.eq(before[min(c, len(before) - 1)])
            with m.If(now_hit[c]):
                m.d.comb += value.eq(self.write.data[c])
            values.append(value)
        operands = [Signal(width, name=f"operand{g}", reset_less=True) for g in groups]
        forward = Signal(self.columns)  # columns of stage 1 that stage 2 completes
        m.d.comb += forward.eq(Mux(complete & (stage2["row"] == stage1["row"]), stage2["mask"] & stage1["mask"], 0))
        forward2 = Signal(self.columns)
        m.d.sync += forward2.eq(forward)
        with m.If(stage1["loads"]):
            for g in groups:
                m.d.sync += operands[g].eq(values[g])
            if self.columns > 1:
                selected = Array(values)[stage1["column"]]
                if self.groups == 1:
                    m.d.sync += operands[0].eq(selected)
                else:
                    with m.If(stage1["depthwise"]):
                        m.d.sync += operands[0].eq(selected)

        # Stage 2: add.
        for g in groups:
            start = Signal(width, name=f"start{g}")
            with m.If(~stage2["first"]):
                m.d.comb += start.eq(sums[g])
            with m.Elif(stage2["loads"]):
                m.d.comb += start.eq(operands[g])
                if self.groups == 1:
                    with m.If(forward2.any()):
                        m.d.comb += start.eq(sums[0])
                else:
                    with m.If(forward2[g] & ~stage2["depthwise"]):
                        m.d.comb += start.eq(self.write.data[g])
                    if g == 0:
                        with m.If(forward2.any() & stage2["depthwise"]):
                            written = Array(self.write.data[c] for c in columns)
                            m.d.comb += start.eq(written[stage2["column"]])
            with m.If(stage2["valid"]):
                lanes = [
                    (start[32 * l : 32 * l + 32].as_signed() + self.sums[g * self.lanes + l])[:32]
                    for l in range(self.lanes)
                ]
                m.d.sync += sums[g].eq(Cat(lanes))
        return m
