"""The scratchpads together: who reads and writes which."""

from __future__ import annotations

from amaranth.hdl import C, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from tilewright.hw.memory.activations import ActivationScratchpad
from tilewright.hw.memory.load_layouts import LoadWrite
from tilewright.hw.memory.scratchpads import (
    AccumulatorScratchpad,
    ParameterScratchpad,
    TableScratchpad,
    WeightScratchpad,
)
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory


class Storage(wiring.Component):
    """ACT, WGT, ACC, PRM and LUT (where there are tables).

    Ports:
        load: writes of LOAD to all but ACC.
        codes: writes of its decoder, where there is one, to WGT.
        gemm_act, gemm_wgt, gemm_acc, acc_write: reads and writes of GEMM.  gemm_second: its second row of ACT, with
            `window_pairs`.
        vector_acc, vector_a, vector_b, bias, scale, table; vector_write: reads of VECTOR; its results, to ACT.
        scale_write: writes of its row unit, where there is one, to PRM.
        store: reads of STORE.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.act, self.wgt, self.acc, self.prm = (
            ActivationScratchpad(config),
            WeightScratchpad(config),
            AccumulatorScratchpad(config),
            ParameterScratchpad(config),
        )
        self.lut = TableScratchpad(config) if config.table_lookup else None
        act, wgt, acc, prm = (part.signature.members for part in (self.act, self.wgt, self.acc, self.prm))
        members = {
            "load": In(LoadWrite(config)),
            "gemm_act": act["gemm"],
            "gemm_wgt": wgt["read"],
            "gemm_acc": acc["gemm"],
            "acc_write": acc["write"],
            "vector_acc": acc["vector"],
            "vector_a": act["vector_a"],
            "vector_b": act["vector_b"],
            "vector_write": act["vector_write"],
            "bias": prm["bias"],
            "scale": prm["scale"],
            "store": act["store"],
        }
        if config.window_pairs:
            members["gemm_second"] = act["gemm_second"]
        if config.weight_codes:
            members["codes"] = wgt["codes"]
        if config.row_unit:
            members["scale_write"] = prm["scale_write"]
        if self.lut is not None:
            members["table"] = self.lut.signature.members["read"]
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.act, m.submodules.wgt, m.submodules.acc, m.submodules.prm = self.act, self.wgt, self.acc, self.prm
        connect(m, flipped(self.gemm_act), self.act.gemm)
        connect(m, flipped(self.vector_a), self.act.vector_a)
        connect(m, flipped(self.vector_b), self.act.vector_b)
        connect(m, flipped(self.vector_write), self.act.vector_write)
        connect(m, flipped(self.store), self.act.store)
        connect(m, flipped(self.gemm_wgt), self.wgt.read)
        connect(m, flipped(self.gemm_acc), self.acc.gemm)
        connect(m, flipped(self.acc_write), self.acc.write)
        connect(m, flipped(self.vector_acc), self.acc.vector)
        connect(m, flipped(self.bias), self.prm.bias)
        connect(m, flipped(self.scale), self.prm.scale)
        if self.config.window_pairs:
            connect(m, flipped(self.gemm_second), self.act.gemm_second)
        if self.config.weight_codes:
            connect(m, flipped(self.codes), self.wgt.codes)
        if self.config.row_unit:
            connect(m, flipped(self.scale_write), self.prm.scale_write)
        writers = {Memory.ACT: self.act.load, Memory.WGT: self.wgt.write, Memory.PRM: self.prm.write}
        if self.lut is not None:
            m.submodules.lut = self.lut
            connect(m, flipped(self.table), self.lut.read)
            writers[Memory.LUT] = self.lut.write

        granted: Value = C(1)
        for target, writer in writers.items():
            chosen = Signal(name=f"load_to_{target.name.lower()}")
            m.d.comb += [
                chosen.eq(self.load.valid & (self.load.target == target)),
                writer.valid.eq(chosen),
                writer.row.eq(self.load.row),
                writer.chunk.eq(self.load.chunk),
                writer.data.eq(self.load.data),
            ]
            for name in ("rows", "full", "packed"):
                if name in writer.signature.members:
                    m.d.comb += getattr(writer, name).eq(getattr(self.load, name))
            if "grant" in writer.signature.members:
                granted &= ~chosen | writer.grant
        m.d.comb += self.load.grant.eq(granted)
        return m
