"""The GEMM engine: steps, window, array, accumulation."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Out, connect, flipped

from tilewright.hw.gemm.accumulate import ACCUMULATE_STAGES, Accumulate
from tilewright.hw.gemm.array import PACKED_OFFSET, MacArray
from tilewright.hw.gemm.steps import GemmSteps
from tilewright.hw.gemm.window import Window
from tilewright.hw.interfaces import Fault
from tilewright.hw.issue.engine import EngineShell
from tilewright.hw.memory.scratchpad_ports import ScratchpadRead
from tilewright.hw.parts.pipeline import Pipeline
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import ACT_READ_CYCLES, WGT_READ_CYCLES, gemm_depth, gemm_signal

assert ACT_READ_CYCLES == WGT_READ_CYCLES
#: Cycles after the step: the rows are there; they are in the operand registers.
READ_STAGE = ACT_READ_CYCLES
OPERAND_STAGE = READ_STAGE + 1
#: Instructions the pipeline can hold, with room to spare.
IN_PIPELINE = 16


class Gemm(EngineShell):
    """Runs GEMM and DEPTHWISE, one step per cycle, never stalling.

    Cycle 0: step, ACT and WGT reads. READ_STAGE: read data. OPERAND_STAGE: window and weights registered. Then
    `array_stages`; ACC is read ACCUMULATE_STAGES before the accumulate stage. Signals are given `gemm_signal` cycles
    after the last step: the first step they allow comes in the cycle after the last ACC write.

    Ports:
        control, retire, activity: see `EngineShell`.
        act, wgt: reads.  second: of the second push of a step, with `window_pairs`.  acc, acc_write: ports of ACC.
        mac: a step is made that is a product, not GEMM_SYNC.
        range_fault: the step before named a row beyond its memory; there is none in this cycle.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.array = MacArray(config)
        self.accumulate = Accumulate(config, self.array.sum_bits)
        acc = self.accumulate.signature.members
        super().__init__(
            config,
            Engine.GEMM,
            {
                "act": Out(ScratchpadRead(Out(8 * config.block_in))),
                **({"second": Out(ScratchpadRead(Out(8 * config.block_in)))} if config.window_pairs else {}),
                "wgt": Out(ScratchpadRead(Out(8 * config.block_in).array(config.block_out))),
                "acc": acc["read"],
                "acc_write": acc["write"],
                "mac": Out(1),
                "range_fault": Out(Fault(config)),
            },
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.steps = steps = GemmSteps(c, self.accumulate.columns)
        m.submodules.window = window = Window(c)
        m.submodules.array = array = self.array
        m.submodules.accumulate = accumulate = self.accumulate
        connect(m, flipped(self.control), steps.control)
        connect(m, steps.fault, flipped(self.range_fault))
        m.d.comb += [
            self.act.valid.eq(steps.act_read),
            self.act.row.eq(steps.act_row),
            self.wgt.valid.eq(steps.wgt_read),
            self.wgt.row.eq(steps.wgt_row),
            self.mac.eq(steps.mac),
            self.activity.step.eq(steps.step),
            self.activity.stalled.eq(0),
        ]

        # Control travels with the data. A step that is found to be wrong ends as it becomes known.
        pipe = Pipeline(m)
        for name in ("mac", "depthwise", "clear", "first", "last", "accumulate", "slice", "row", "column"):
            pipe.put(name, getattr(steps, name))
        if c.delay_lines:
            pipe.put("delay", steps.delay)
            m.d.comb += window.delay.eq(pipe.at("delay", READ_STAGE))
        if c.window_pairs:
            pipe.put("twice", steps.twice)
            m.d.comb += [
                self.second.valid.eq(steps.act_read & steps.twice),
                self.second.row.eq(steps.act_second),
                window.second.eq(self.second.data),
                window.twice.eq(pipe.at("twice", READ_STAGE)),
            ]
        pipe.put("end", steps.end, reset=True)
        pipe.put("made", steps.mac & steps.emits, reset=True)
        pipe.put("valid", pipe.at("made", 1) & ~steps.fault.error, 1, reset=True)
        read, operand, control = (
            pipe.stage(READ_STAGE),
            pipe.stage(OPERAND_STAGE),
            pipe.stage(gemm_depth(c) - ACCUMULATE_STAGES),
        )
        m.d.comb += [
            window.push.eq(read["mac"]),
            window.vector.eq(self.act.data),
            window.shift.eq(read["depthwise"]),
            window.slice.eq(read["slice"]),
            window.clear.eq(read["depthwise"] & read["clear"]),
            array.valid.eq(operand["valid"]),
        ]
        m.d.comb += [to.eq(slot) for to, slot in zip(array.slots, window.slots, strict=True)]
        for o, row in enumerate(array.rows):
            # The upper bit of a lower weight is inverted in front of the product, whose own register starts at 0.
            start = PACKED_OFFSET if c.packed_products and o >= c.block_out // 2 else 0
            init = int.from_bytes([start] * c.block_in)
            weights = Signal(8 * c.block_in, name=f"tile{o}", reset_less=True, init=init)
            with m.If(read["valid"]):
                m.d.sync += weights.eq(self.wgt.data[o])
            m.d.comb += [row.eq(weights), accumulate.sums[o].eq(array.sums[o])]
        for name in ("valid", "first", "last", "accumulate", "depthwise", "row", "column"):
            m.d.comb += getattr(accumulate, name).eq(control[name])
        connect(m, accumulate.read, flipped(self.acc))
        connect(m, accumulate.write, flipped(self.acc_write))
        self.retire_in_order(m, steps.current_pc, pipe.at("end", gemm_signal(c)), IN_PIPELINE)
        return m
