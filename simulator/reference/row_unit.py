"""ROW: softmax and norms, on VECTOR."""

from __future__ import annotations

import math

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.config import WIDE_TABLE
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import ROW_WRITES, Engine, RowFunction
from tilewright.isa.row_bits import EPSILON_FRACTION
from tilewright.isa.row_norm import RowNorm, normalise, row_norm
from tilewright.simulator.reference.loops import offset, offsets, walk
from tilewright.simulator.reference.vector import Vector


class VectorWithRows(Vector):
    """VECTOR with the instruction of its row unit, which has the loops and registers of VECTOR."""

    def row(self, op: Op) -> None:
        loops, function = self.vector_loops, RowFunction(op["function"])
        levels = 0 if function in ROW_WRITES else op["reduce"]
        inner, outer = loops[:levels], loops[levels:]
        self.chip.spend(Engine.VECTOR, math.prod(loop.count for loop in loops))
        for index in walk(outer):
            a = op["a"] + offset(outer, index, "a_stride")
            vectors = self.chip.pads.act[[self.chip.act_row(a + i) for i in offsets(inner, "a_stride").tolist()]]
            if function == RowFunction.NORM:
                place = op["number"] + offset(outer, index, "b_stride")
                norm = RowNorm(*self.chip.pads.norms[self.chip.row("STAT", place, self.chip.config.prm_rows)].tolist())
            prm = self.chip.row("PRM", op["prm"] + offset(outer, index, "prm_stride"), self.chip.config.prm_rows)
            if function in ROW_WRITES:
                bias, scale = self.chip.pads.prm[prm, :, 0].view(np.int32), self.chip.pads.prm[prm, :, 1]
                limits = tuple(self.post[name] for name in ("zp", "lo", "hi"))
                if function == RowFunction.EXP:
                    value = numerics.requantize(
                        self._words(vectors[0], int(self.chip.pads.maxima[prm])), scale, *limits
                    )
                else:
                    value = normalise(vectors[0], norm, bias, scale, *limits)
                self.chip.pads.act[self.chip.act_row(op["dst"] + offset(outer, index, "dst_stride"))] = value
                continue
            counts = np.ones(vectors.shape, bool)
            counts[-1, op["tail"] or self.chip.config.block_in :] = False
            if function == RowFunction.MAXIMUM:
                self.chip.pads.maxima[prm] = vectors[counts].max()
            elif function == RowFunction.EXP_SUM:
                total = int(self._words(vectors[counts], int(self.chip.pads.maxima[prm])).sum())
                self.chip.pads.prm[prm, :, 1] = numerics.row_scale(total, op["number"], op["exponent"])
            else:
                words = self._words(vectors, self.post["za"]) * counts
                sums = words.reshape(-1, self.chip.config.vector_lanes).sum(axis=1)  # of a pass
                bits = self.chip.config.row_square_bits
                squares, total = int((sums & ((1 << bits) - 1)).sum()), int((sums >> bits).sum())
                centred = function == RowFunction.MOMENTS
                epsilon = self.add["c"] << EPSILON_FRACTION | self.add["ma"] % (1 << EPSILON_FRACTION)
                self.chip.pads.norms[prm] = row_norm(squares, total, op["number"], epsilon, centred)

    def _words(self, values: np.ndarray, zero: int) -> np.ndarray:
        """The words of the wide table for int8 values less `zero`: int64."""
        first = self.post["table"] // WIDE_TABLE * WIDE_TABLE
        words = self.chip.pads.lut[first : first + WIDE_TABLE].reshape(-1).view("<u4")
        found: np.ndarray = words[(values.astype(np.int64) - zero) & 0xFF].astype(np.int64)
        return found & ((1 << self.chip.config.row_word_bits) - 1)
