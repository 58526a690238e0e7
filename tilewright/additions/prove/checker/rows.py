"""ROW on names, by the semantics of docs/isa.md."""

from __future__ import annotations

import numpy as np

from tilewright.isa.config import WIDE_TABLE
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import ROW_WRITES, RowFunction
from tilewright.isa.row_bits import EPSILON_FRACTION
from tilewright.prove.checker import statistics
from tilewright.prove.checker.cells import CELL, VALUE
from tilewright.prove.checker.fields import Array
from tilewright.prove.checker.findings import NoRule
from tilewright.prove.checker.memories import Memories, nest


class Rows(Memories):
    """VECTOR's row unit, with the registers MAX and STAT: a value for every row of PRM."""

    def _row(self, op: Op) -> None:
        c, function = self.config, RowFunction(op["function"])
        self.names.count("step of ROW")
        self.order.complete()
        levels = 0 if function in ROW_WRITES else op["reduce"]
        inner, outer = nest([l[:2] for l in self.vector_loops[:levels]], 1)[0], nest(self.vector_loops[levels:], 4)
        a = self.rows("ACT", op["a"] + outer[0][:, None] + inner, c.act_rows)
        prm = self.rows("PRM", op["prm"] + outer[3], c.prm_rows)
        self.order.read("ACT", a.ravel())
        cells = self.act[a]  # [rows, vectors, lanes, CELL]
        if function in ROW_WRITES:
            self._write_vectors(op, function, cells[:, 0], a[:, 0], prm, outer)
            return
        if len(np.unique(prm)) < len(prm):
            raise NoRule("no rule for two rows with one result")
        counts = np.ones(cells.shape[1:3], bool)
        counts[-1, op["tail"] or c.block_in :] = False
        chosen = cells[:, counts]  # [rows, n, CELL]
        if function == RowFunction.MAXIMUM:
            self.row_maxima[prm] = self.names.maximum(chosen)
        elif function == RowFunction.EXP_SUM:
            terms = statistics.exponentials(self.names, self._words(), chosen, self.row_maxima[prm])
            self.order.write("PRM", prm)
            total = statistics.summed(terms)
            scales = statistics.row_scales(self.names, total, op["number"], op["exponent"])
            self.prm[prm] = self.names.cells(scales)[:, None, None]
        else:
            words = self._words()[np.arange(256) - self.post["za"] & 255]  # by the byte of ACT
            squares, values = words & (1 << c.row_square_bits) - 1, words >> c.row_square_bits
            if squares.max() * c.vector_lanes >= 1 << c.row_square_bits:
                raise NoRule("no rule for squares whose sum in a pass has more bits than its field")
            total = statistics.summed(statistics.moments(self.names, squares, values, chosen))
            epsilon = self.add["c"] << EPSILON_FRACTION | self.add["ma"] % (1 << EPSILON_FRACTION)
            centred = function == RowFunction.MOMENTS
            self.row_norms[prm] = statistics.row_norms(self.names, total, op["number"], epsilon, centred)

    def _write_vectors(
        self, op: Op, function: RowFunction, cells: Array, a: Array, prm: Array, outer: list[Array]
    ) -> None:
        """EXP and NORM: a vector for each of ACT."""
        c, limits = self.config, tuple(self.post[name] for name in ("zp", "lo", "hi"))
        dst = self.rows("ACT", op["dst"] + outer[2], c.act_rows)
        self.check_steps(a[:, None], dst)
        if function == RowFunction.EXP:
            self.order.read("PRM", prm)
            terms = statistics.exponentials(self.names, self._words(), cells, self.row_maxima[prm])
            scales = np.broadcast_to(self.prm[prm, 0, 0, VALUE][:, None], terms.shape)
            found = statistics.probabilities(self.names, terms, scales, *limits)
        else:
            norms = self.row_norms[self.rows("STAT", op["number"] + outer[1], c.prm_rows)][:, None]
            bias, _, scale = self._parameters(prm)
            found = statistics.normalised(self.names, cells, norms, bias, scale, *limits)
        self.write_act(dst, found.reshape(len(dst), c.block_in, CELL))

    def _words(self) -> Array:
        """The 256 words of the wide table."""
        first = self.post["table"] // WIDE_TABLE * WIDE_TABLE
        tables = np.arange(first, first + WIDE_TABLE)
        self.order.read("LUT", tables)
        words = self.values(self.lut[tables], "tables").reshape(-1).view("<u4").astype(np.int64)
        return np.asarray(words & (1 << self.config.row_word_bits) - 1)
