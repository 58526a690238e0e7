"""The machine on names: the instructions of one NPU step, by the semantics of docs/isa.md."""

from __future__ import annotations

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.config import WIDE_TABLE
from tilewright.isa.encoding import DecodeError, Op, check
from tilewright.isa.instructions import ROW_WRITES, RowFunction, Source, WideByte
from tilewright.isa.row_bits import EPSILON_FRACTION
from tilewright.prove.checker import norms, wide
from tilewright.prove.checker.cells import BYTES, CELL, VALUE, cases
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array, as_integers, field_product
from tilewright.prove.checker.graph import Finding, NoRule
from tilewright.prove.checker.memories import Memories, nest


class Machine(Memories):
    """The engines: one NPU step from its first instruction to END."""

    def run(self, first: int = 0) -> None:
        """Runs the instructions up to END; `first` is the number of the first one, for messages.

        Raises:
            Finding: an access outside, of what is not there, or in no order.
            NoRule: an instruction without a rule.
        """
        for number, op in enumerate(self.ops, first):
            try:
                check(op, self.config)
                if op.name == "END":
                    return
                self.order.start(op, number)
                self._execute(op)
                self.order.finish(op)
            except (DecodeError, Finding, NoRule) as error:
                where = "" if str(error).startswith("instruction") else f"instruction {number} ({op.name}): "
                raise (NoRule if isinstance(error, NoRule) else Finding)(f"{where}{error}") from None
        raise Finding("the instructions have no END")

    def _execute(self, op: Op) -> None:
        if op.name in self.loops:
            self.loops[op.name][op["level"]] = op
        elif op.name in self.settings:
            self.settings[op.name] = op
        elif not op.name.endswith("_SYNC"):
            run = getattr(self, f"_{op.name.lower()}", None)
            if run is None:
                raise NoRule(f"no rule for {op.name}")
            run(op)

    # products

    def _accumulate(self, offsets: Array, lanes: int, sums: Array, accumulate: bool) -> None:
        """Writes sums [n, lanes, FIELDS] to ACC rows of so many lanes, or adds them."""
        rows = self.acc_rows(self.order.write, offsets, lanes)
        acc = self.acc.reshape(-1, lanes, FIELDS)
        distinct, inverse = np.unique(rows, return_inverse=True)
        if len(distinct) < len(rows):
            total = np.zeros((len(distinct), lanes, FIELDS), np.int64)
            np.add.at(total, inverse.ravel(), sums.astype(np.int64))
            rows, last = self.last(rows)
            sums = (total % PRIMES).astype(np.uint32) if accumulate else sums[last]
        acc[rows] = self.names.added(acc[rows], sums) if accumulate else sums

    def _gemm(self, op: Op) -> None:
        inner = self.nest("GEMM_LOOP", 0, op["reduce"], "act_stride", "wgt_stride")
        act, wgt, acc = self.nest("GEMM_LOOP", op["reduce"], None, "act_stride", "wgt_stride", "acc_stride")
        starts, which = np.unique(wgt, return_inverse=True)
        sums = np.empty((len(acc), self.config.block_out, FIELDS), np.uint32)
        full = len(np.unique(act)) * len(starts) == len(acc)  # every row of ACT by every row of tiles
        for group in [np.arange(len(starts))] if full else np.arange(len(starts))[:, None]:
            here = np.isin(which, group)
            own, place = np.unique(act[here], return_inverse=True)
            rows = self.reads("ACT", op["act"] + own[:, None] + inner[0])
            tiles = self.reads("WGT", op["wgt"] + starts[group][:, None] + inner[1])
            found = self._product(self.act[rows].reshape(len(rows), -1, CELL), self.wgt[tiles])
            sums[here] = found.reshape(len(own), len(group), *sums.shape[1:])[place, which[here] - group[0]]
        self._accumulate(op["acc"] + acc, self.config.block_out, sums, bool(op["accumulate"]))

    def _product(self, cells: Array, tiles: Array) -> Array:
        """Elements [rows, groups * out, FIELDS]: cells [rows, n, CELL] times tiles [groups, n / in, out, in, CELL]."""
        columns = tiles.transpose(1, 3, 0, 2, 4).reshape(cells.shape[1], -1, CELL)
        if self.names.fixed(columns).all():
            w = self.values(columns, "weights")
            return self.names.product(cells, w, self.weights_made and w.max() == 1 and w.min() >= 0)
        known, factors = as_integers(cells[..., VALUE])
        if known.all():
            return self.names.product(columns.swapaxes(0, 1), factors.T, ranges=True).swapaxes(0, 1)
        return field_product(cells[..., VALUE], columns[..., VALUE])

    def _depthwise(self, op: Op) -> None:
        c, lanes = self.config, self.config.dw_lanes
        act, wgt, acc, i0, i1 = nest([
            (l["count"], l["act_stride"], l["wgt_stride"], l["acc_stride"] * (n > 1), n == 0, n == 1)
            for n, l in enumerate(self.loops["GEMM_LOOP"])
        ], 5)  # fmt: skip
        pushed = self.reads("ACT", op["act"] + act)
        i0, i1 = i0 - op["start0"], i1 - op["start1"]
        at = np.flatnonzero((i0 >= 0) & (i0 % op["step0"] == 0) & (i1 >= 0) & (i1 % op["step1"] == 0))
        for level, place, step in ((0, i0, op["step0"]), (1, i1, op["step1"])):
            acc = acc + place // step * self.loops["GEMM_LOOP"][level]["acc_stride"]
        tiles, which = np.unique(op["wgt"] + wgt[at], return_inverse=True)
        weights = self.values(self.wgt[self.reads("WGT", tiles)][:, :lanes], "weights of a window")
        slots = np.flatnonzero(weights.any(axis=(0, 1)) | (np.arange(c.block_in) == 0))
        source = at[:, None] - slots - op["delay"] * (slots // c.window_segment)
        w = np.where(source >= 0, weights[which.ravel()][:, :, slots].swapaxes(0, 1), 0)  # [lanes, n, slots]
        places = self._lanes(pushed[np.maximum(source, 0)])[op["slice"] * lanes :][:lanes]
        sums = self.names.window(self.act.reshape(-1, CELL), places, w).swapaxes(0, 1)
        self._accumulate(op["acc"] + acc[at], lanes, sums, bool(op["accumulate"]))

    def _lanes(self, rows: Array) -> Array:
        """Places [block_in, ...] of the bytes of rows in all of ACT."""
        return np.asarray(np.add.outer(np.arange(self.config.block_in), rows * self.config.block_in))

    # VECTOR

    def _steps(self, op: Op, reduce: int) -> tuple[Array, list[Array]]:
        """Offsets of `a` within a step, and of all operands of every step."""
        inner = self.nest("VECTOR_LOOP", 0, reduce, "a_stride")[0]
        return inner, self.nest("VECTOR_LOOP", reduce, None, "a_stride", "b_stride", "dst_stride", "prm_stride")

    def _vector(self, op: Op) -> None:
        c, names, post, add = self.config, self.names, self.settings["VECTOR_POST"], self.settings["VECTOR_ADD"]
        source = Source(op["source"])
        inner, (a, b, dst, prm) = self._steps(op, op["reduce"] if source in (Source.SUM, Source.MAX) else 0)
        dst = self.rows("ACT", op["dst"] + dst)
        if source == Source.ACC:
            acc = self.acc.reshape(-1, c.block_in, FIELDS)
            sums = acc[self.acc_rows(self.order.read, op["a"] + a, c.block_in)]
        else:
            rows = self.reads("ACT", op["a"] + a[:, None] + inner, dst)
            cells = self.act[rows[:, 0]]
        if source == Source.MUL or op["add"]:
            second = self.act[self.reads("ACT", op["b"] + b, dst)]
        if source in (Source.ACC, Source.MUL, Source.SUM):
            bias, made, scale = self.parameters(op["prm"] + prm, sums=source != Source.MUL)
            rule = (post["zp"], post["lo"], post["hi"], op["rounding"])
            if source == Source.MUL:
                cells = self._multiplied(cells, second, bias, scale, rule)
            else:
                if source == Source.SUM:
                    sums = names.window(self.act.reshape(-1, CELL), self._lanes(rows), np.ones(len(inner)))
                    sums = sums.swapaxes(0, 1)
                sums = np.asarray((sums.astype(np.int64) + made) % PRIMES, np.uint32)
                cells = names.requantize(sums, bias, scale, rule)
        elif source == Source.MAX:
            cells = names.maximum(np.moveaxis(self.act[rows], 1, 2))
        if op["add"]:
            table = numerics.add_integer(BYTES[:, None], BYTES[None], add["ma"], add["mb"], add["c"], add["shift"],
                                         post["add_lo"], post["add_hi"])  # fmt: skip
            cells = names.combine(cells, second, table)
        if op["lut"]:
            table = self.lut[self.reads("LUT", np.array([post["table"]]))[0]]
            cells = names.look_up(cells, self.values(table, "tables"))
        self.write_act(dst, cells)

    def _multiplied(self, a: Array, b: Array, bias: Array, scale: Array, rule: tuple[int, int, int, int]) -> Array:
        """Cells of products of bytes, requantised: a function of two bytes for each pair of bias and scale."""
        found, post = np.empty_like(a), self.settings["VECTOR_POST"]
        product = np.multiply.outer(BYTES.astype(np.int64) - post["za"], BYTES.astype(np.int64) - post["zb"])
        for (one_bias, one_scale), here in cases(np.stack([bias, scale.astype(np.int64)], axis=-1)):
            table = numerics.requantize(numerics.wrap32(product + one_bias), np.uint32(one_scale), *rule)
            found[here] = self.names.combine(a[here], b[here], table)
        return found

    def _vector_wide(self, op: Op) -> None:
        """One byte of results of 16 bits, of the sums of high bytes and those of low ones behind."""
        c, names = self.config, self.names
        inner, (a, _, dst, prm) = self._steps(op, op["reduce"])
        if len(inner) != 2:
            raise NoRule(f"no rule for results of 16 bits of {len(inner)} sums")
        rows = self.acc_rows(self.order.read, op["a"] + a[:, None] + inner, c.block_in)
        bias, _, scale = self.parameters(op["prm"] + prm)
        high, low = np.moveaxis(self.acc.reshape(-1, c.block_in, FIELDS)[rows], 1, 0)
        found = wide.split(names, wide.results(names, high, low, bias, scale, op["low"], op["high"]))
        self.write_act(self.rows("ACT", op["dst"] + dst), names.cells(found[op["byte"] != WideByte.HIGH]))

    # ROW

    def _row(self, op: Op) -> None:
        """The row unit, with the registers MAX and STAT: a value for every row of PRM."""
        c, names, function, post = self.config, self.names, RowFunction(op["function"]), self.settings["VECTOR_POST"]
        self.order.complete()
        inner, (a, b, dst, prm) = self._steps(op, 0 if function in ROW_WRITES else op["reduce"])
        rows, prm = op["a"] + a[:, None] + inner, self.rows("PRM", op["prm"] + prm)
        if function in ROW_WRITES:  # a vector for each of ACT
            limits, dst = (post["zp"], post["lo"], post["hi"]), self.rows("ACT", op["dst"] + dst)
            cells = self.act[self.reads("ACT", rows, dst)][:, 0]
            if function == RowFunction.EXP:
                self.order.read("PRM", prm)
                terms = norms.exponentials(names, self._words(), cells, self.row_maxima[prm])
                found = norms.probabilities(names, terms, self.prm[prm, 0, :1, VALUE], *limits)
            else:
                factors = self.row_norms[self.rows("STAT", op["number"] + b)][:, None]
                bias, _, scale = self.parameters(prm)
                found = norms.normalised(names, cells, factors, bias, scale, *limits)
            self.write_act(dst, found)
            return
        if len(np.unique(prm)) < len(prm):
            raise NoRule("no rule for two rows with one result")
        cells = self.act[self.reads("ACT", rows)]  # [rows, vectors, lanes, CELL]
        cells = cells.reshape(len(prm), -1, CELL)[:, : (len(inner) - 1) * c.block_in + (op["tail"] or c.block_in)]
        if function == RowFunction.MAXIMUM:
            self.row_maxima[prm] = names.maximum(cells)
        elif function == RowFunction.EXP_SUM:
            terms = norms.exponentials(names, self._words(), cells, self.row_maxima[prm])
            self.order.write("PRM", prm)
            scales = norms.row_scales(names, terms, op["number"], op["exponent"])
            self.prm[prm] = names.cells(scales)[:, None, None]
        else:
            words = self._words()[np.arange(256) - post["za"] & 255]  # by the byte of ACT
            squares, values = words & (1 << c.row_square_bits) - 1, words >> c.row_square_bits
            if squares.max() * c.vector_lanes >= 1 << c.row_square_bits:
                raise NoRule("no rule for squares whose sum in a pass has more bits than its field")
            add, centred = self.settings["VECTOR_ADD"], function == RowFunction.MOMENTS
            epsilon = add["c"] << EPSILON_FRACTION | add["ma"] % (1 << EPSILON_FRACTION)
            self.row_norms[prm] = norms.row_norms(names, cells, squares, values, op["number"], epsilon, centred)

    def _words(self) -> Array:
        """The 256 words of the wide table."""
        first = self.settings["VECTOR_POST"]["table"] // WIDE_TABLE * WIDE_TABLE
        tables = self.lut[self.reads("LUT", first + np.arange(WIDE_TABLE))]
        words = self.values(tables, "tables").reshape(-1).view("<u4").astype(np.int64)
        return np.asarray(words & (1 << self.config.row_word_bits) - 1)
