"""VECTOR: post-processing of sums, and functions of vectors."""

from __future__ import annotations

import math

import numpy as np

from tilewright.isa import numerics, wide_numerics
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import BY_NAME, Engine, Source
from tilewright.simulator.reference.chip import Chip
from tilewright.simulator.reference.loops import Loop, loop_of, offset, offsets, walk


class Vector:
    """VECTOR with its configuration after reset; a method for each instruction."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.vector_loops = [Loop(1, {})] * chip.config.vector_loops
        self.add = Op(BY_NAME["VECTOR_ADD"])
        self.post = Op(BY_NAME["VECTOR_POST"])

    def vector_loop(self, op: Op) -> None:
        self.vector_loops[op["level"]] = loop_of(op)

    def vector_add(self, op: Op) -> None:
        self.add = op

    def vector_post(self, op: Op) -> None:
        self.post = op

    def vector(self, op: Op) -> None:
        loops = self.vector_loops
        source = Source(op["source"])
        levels = op["reduce"] if source in (Source.SUM, Source.MAX) else 0
        inner, outer = loops[:levels], loops[levels:]
        self.chip.spend(Engine.VECTOR, math.prod(loop.count for loop in loops))
        a_inner = offsets(inner, "a_stride").tolist()
        for index in walk(outer):
            a = op["a"] + offset(outer, index, "a_stride")
            b = op["b"] + offset(outer, index, "b_stride")
            prm = op["prm"] + offset(outer, index, "prm_stride")
            dst = op["dst"] + offset(outer, index, "dst_stride")
            value = self._source(source, a, a_inner)  # int64 [block_in]
            if source == Source.MUL or op["add"]:
                operand_b = self.chip.pads.act[self.chip.act_row(b)].astype(np.int64)
            if source == Source.MUL:
                value = (value - self.post["za"]) * (operand_b - self.post["zb"])
            if source in (Source.ACC, Source.MUL, Source.SUM):
                value = self._requantize(value, prm, op["rounding"])
            if op["add"]:
                k = self.add
                limits = (self.post["add_lo"], self.post["add_hi"])
                value = numerics.add_integer(value, operand_b, k["ma"], k["mb"], k["c"], k["shift"], *limits)
            if op["lut"]:
                value = self.chip.pads.lut[self.post["table"], value.astype(np.int64) & 255].view(np.int8)
            self.chip.pads.act[self.chip.act_row(dst)] = value

    def vector_wide(self, op: Op) -> None:
        loops, levels = self.vector_loops, op["reduce"]
        self.chip.spend(Engine.VECTOR, math.prod(loop.count for loop in loops))
        a_inner = offsets(loops[:levels], "a_stride").tolist()
        acc = self.chip.pads.acc.reshape(-1, self.chip.config.block_in)
        for index in walk(loops[levels:]):
            a, prm, dst = (op[name] + offset(loops[levels:], index, f"{name}_stride") for name in ("a", "prm", "dst"))
            value = np.zeros(self.chip.config.block_in, np.int64)
            for more in a_inner:
                row = acc[self.chip.row("ACC", a + more, self.chip.config.acc_vectors)]
                value = wide_numerics.wrap48((value << 8) + row.astype(np.int64))
            parameters = self.chip.pads.prm[self.chip.row("PRM", prm, self.chip.config.prm_rows)]
            value = wide_numerics.wrap48(value + parameters[:, 0].view(np.int32).astype(np.int64))
            result = wide_numerics.requantize_wide_bits(value, parameters[:, 1], op["low"], op["high"])
            self.chip.pads.act[self.chip.act_row(dst)] = wide_numerics.wide_byte(result, op["byte"])

    def _source(self, source: Source, a: int, inner: list[int]) -> np.ndarray:
        if source == Source.ACC:
            row = self.chip.row("ACC", a, self.chip.config.acc_vectors)
            sums: np.ndarray = self.chip.pads.acc.reshape(-1, self.chip.config.block_in)[row]
            return sums.astype(np.int64)
        vectors = self.chip.pads.act[[self.chip.act_row(a + i) for i in inner]].astype(np.int64)
        reduced: np.ndarray = vectors.max(axis=0) if source == Source.MAX else vectors.sum(axis=0)
        return reduced

    def _requantize(self, value: np.ndarray, prm: int, rounding: int) -> np.ndarray:
        row = self.chip.pads.prm[self.chip.row("PRM", prm, self.chip.config.prm_rows)]
        bias, scale = row[:, 0].view(np.int32).astype(np.int64), row[:, 1]
        zp, lo, hi = (self.post[name] for name in ("zp", "lo", "hi"))
        return numerics.requantize(numerics.wrap32(value + bias), scale, zp, lo, hi, rounding)

    def vector_sync(self, op: Op) -> None:
        self.chip.spend(Engine.VECTOR, 1)
