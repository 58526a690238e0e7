"""The machine on names: the instructions of one NPU step, by the semantics of docs/isa.md."""

from __future__ import annotations

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.encoding import DecodeError, Op, check
from tilewright.isa.instructions import Source, WideByte
from tilewright.prove.checker import wide
from tilewright.prove.checker.cells import CELL, VALUE
from tilewright.prove.checker.fields import FIELDS, PRIMES, as_integers, field_product
from tilewright.prove.checker.findings import Finding, NoRule
from tilewright.prove.checker.memories import nest
from tilewright.prove.checker.rows import Rows

Array = np.ndarray


class Machine(Rows):
    """The engines: one NPU step from its first instruction to END."""

    def run(self, first: int = 0) -> None:
        """Runs the instructions up to END; `first` is the number of the first one, for messages.

        Raises:
            Finding: an access outside, of what is not there, or in no order.
            NoRule: an instruction without a rule.
        """
        for number, op in enumerate(self.ops):
            try:
                check(op, self.config)
            except DecodeError as error:
                raise Finding(f"instruction {first + number}: {error}") from None
            if op.name == "END":
                return
            self.order.start(op, first + number)
            try:
                self._execute(op)
            except (Finding, NoRule) as error:
                if str(error).startswith("instruction"):
                    raise
                raise type(error)(f"instruction {first + number} ({op.name}): {error}") from None
            self.order.finish(op)
        raise Finding("the instructions have no END")

    def _execute(self, op: Op) -> None:
        match op.name:
            case "GEMM_LOOP":
                self.gemm_loops[op["level"]] = (op["count"], op["act_stride"], op["wgt_stride"], op["acc_stride"])
            case "VECTOR_LOOP":
                strides = (op["a_stride"], op["b_stride"], op["dst_stride"], op["prm_stride"])
                self.vector_loops[op["level"]] = (op["count"], *strides)
            case "LOAD_DIM" | "STORE_DIM":
                self.boxes[op.name[:-4]][op["level"]] = (op["count"], op["row_stride"], op["mem_stride"])
            case "LOAD_PAD":
                self.pad = op
            case "VECTOR_POST":
                self.post = op
            case "VECTOR_ADD":
                self.add = op
            case "LOAD" | "LOAD_PACKED":
                self._load(op)
            case "LOAD_CODED":
                self._load_coded(op)
            case "GEMM":
                self._gemm(op)
            case "DEPTHWISE":
                self._depthwise(op)
            case "VECTOR":
                self._vector(op)
            case "VECTOR_WIDE":
                self._vector_wide(op)
            case "ROW":
                self._row(op)
            case "STORE":
                self._store(op)
            case name if name.endswith("_SYNC"):
                pass
            case name:
                raise NoRule(f"no rule for {name}")

    # products

    def _accumulate(self, rows: Array, lanes: int, sums: Array, accumulate: bool) -> None:
        """Writes sums [n, lanes, FIELDS] to ACC rows of so many lanes, or adds them."""
        units = lanes // self.unit
        self.order.write("ACC", (rows[:, None] * units + np.arange(units)).ravel())
        acc = self.acc.reshape(-1, lanes, FIELDS)
        distinct, inverse = np.unique(rows, return_inverse=True)
        if len(distinct) < len(rows):
            last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
            total = np.zeros((len(distinct), lanes, FIELDS), np.int64)
            np.add.at(total, inverse.ravel(), sums.astype(np.int64))
            rows, sums = distinct, (total % PRIMES).astype(np.uint32) if accumulate else sums[last]
        acc[rows] = self.names.added(acc[rows], sums) if accumulate else sums

    def _gemm(self, op: Op) -> None:
        c, loops = self.config, self.gemm_loops
        self.names.count("product of the array")
        inner, outer = nest([l[:3] for l in loops[: op["reduce"]]], 2), nest(loops[op["reduce"] :], 3)
        acc = self.rows("ACC", op["acc"] + outer[2], c.acc_rows)
        starts, which = np.unique(outer[1], return_inverse=True)
        groups = [np.flatnonzero(which.ravel() == i) for i in range(len(starts))]  # of one row of tiles each
        sums = np.empty((len(acc), c.block_out, FIELDS), np.uint32)
        together = all(np.array_equal(outer[0][g], outer[0][groups[0]]) for g in groups)
        for members in [groups] if together else [[g] for g in groups]:
            rows = self.rows("ACT", op["act"] + outer[0][members[0]][:, None] + inner[0], c.act_rows)
            self.order.read("ACT", rows.ravel())
            tiles = self.rows("WGT", op["wgt"] + outer[1][[g[0] for g in members]][:, None] + inner[1], c.wgt_tiles)
            found = self._product(self.act[rows].reshape(len(rows), -1, CELL), tiles)
            for i, group in enumerate(members):
                sums[group] = found[:, i * c.block_out : (i + 1) * c.block_out]
        self._accumulate(acc, c.block_out, sums, bool(op["accumulate"]))

    def _product(self, cells: Array, tiles: Array) -> Array:
        """Elements [rows, groups * block_out, FIELDS] of cells [rows, n, CELL] times tiles [groups, n / block_in]."""
        self.order.read("WGT", tiles.ravel())
        weights = self.wgt[tiles]  # [groups, inner, out, in, CELL]
        if self.names.fixed(weights).all():
            w = self.values(weights, "weights").transpose(1, 3, 0, 2).reshape(cells.shape[1], -1)
            return self.names.product(cells, w, self.weights_made and w.max() == 1 and w.min() >= 0)
        known, factors = as_integers(cells[..., VALUE])
        if not known.all():
            matrix = weights[..., VALUE].transpose(1, 3, 0, 2, 4).reshape(cells.shape[1], -1, FIELDS)
            return field_product(cells[..., VALUE], matrix)
        found = []
        for group, made in zip(tiles, weights, strict=True):  # constants times activations: each tile once
            distinct, first, which = np.unique(group, return_index=True, return_inverse=True)
            total = np.zeros((len(distinct), len(cells), self.config.block_in), np.int64)
            np.add.at(total, which.ravel(), factors.reshape(len(cells), len(group), -1).swapaxes(0, 1))
            columns = made[first].swapaxes(0, 1).reshape(self.config.block_out, -1, CELL)
            factor = total.transpose(0, 2, 1).reshape(-1, len(cells))
            found.append(self.names.product(columns, factor, ranges=True).swapaxes(0, 1))
        return np.concatenate(found, axis=1)

    def _depthwise(self, op: Op) -> None:
        c, loops = self.config, self.gemm_loops
        lanes = c.dw_lanes
        self.names.count("window of the array")
        act, wgt, _ = nest(loops, 3)
        index = nest([(count, *((1 << 16) ** n if n < 2 else 0,)) for n, (count, *_) in enumerate(loops)], 1)[0]
        i0, i1 = index & 0xFFFF, index >> 16 & 0xFFFF
        emits = (i0 >= op["start0"]) & ((i0 - op["start0"]) % op["step0"] == 0)
        emits &= (i1 >= op["start1"]) & ((i1 - op["start1"]) % op["step1"] == 0)
        outer = nest([(loops[0][0], 0), (loops[1][0], 0), *((l[0], l[3]) for l in loops[2:])], 1)[0]
        emitted0, emitted1 = (i0 - op["start0"]) // op["step0"], (i1 - op["start1"]) // op["step1"]
        acc = (outer + emitted0 * loops[0][3] + emitted1 * loops[1][3])[emits]
        pushed = self.rows("ACT", op["act"] + act, c.act_rows)
        self.order.read("ACT", pushed)
        if not emits.any():
            return
        acc = self.rows("ACC", op["acc"] + acc, c.acc_dw_rows)
        at = np.flatnonzero(emits)
        tiles, which = np.unique(self.rows("WGT", op["wgt"] + wgt[emits], c.wgt_tiles), return_inverse=True)
        self.order.read("WGT", tiles)
        weights = self.values(self.wgt[tiles][:, :lanes], "weights of a window")
        slots = np.flatnonzero(weights.any(axis=(0, 1)) | (np.arange(c.block_in) == 0))
        source = at[:, None] - slots - op["delay"] * (slots // c.window_segment)
        w = np.where(source >= 0, weights[which.ravel()][:, :, slots].swapaxes(0, 1), 0)  # [lanes, n, slots]
        cells = self.act[pushed[np.maximum(source, 0)], op["slice"] * lanes : (op["slice"] + 1) * lanes]
        sums = self.names.window(np.moveaxis(cells, 2, 0), w).swapaxes(0, 1)
        self._accumulate(acc, lanes, sums, bool(op["accumulate"]))

    # VECTOR

    def _vector(self, op: Op) -> None:
        c, names, post = self.config, self.names, self.post
        names.count("step of VECTOR")
        source, loops = Source(op["source"]), self.vector_loops
        reduce = op["reduce"] if source in (Source.SUM, Source.MAX) else 0
        inner, outer = nest([l[:2] for l in loops[:reduce]], 1)[0], nest(loops[reduce:], 4)
        if source == Source.ACC:
            a = self.rows("ACC", op["a"] + outer[0], c.acc_vectors)
            units = c.block_in // self.unit
            self.order.read("ACC", (a[:, None] * units + np.arange(units)).ravel())
        else:
            a = self.rows("ACT", op["a"] + outer[0][:, None] + inner, c.act_rows)
        dst = self.rows("ACT", op["dst"] + outer[2], c.act_rows)
        b = self.rows("ACT", op["b"] + outer[1], c.act_rows) if source == Source.MUL or op["add"] else dst[:0]
        read = [r for r in (a if source != Source.ACC else dst[:0], b) if r.size]
        for rows in read:
            self.order.read("ACT", rows.ravel())
            self.check_steps(rows.reshape(len(dst), -1), dst)
        if source in (Source.ACC, Source.MUL, Source.SUM):
            prm = self.rows("PRM", op["prm"] + outer[3], c.prm_rows)
            bias, made, scale = self._parameters(prm, sums=source != Source.MUL)
            rule = (post["zp"], post["lo"], post["hi"], op["rounding"])
            if source == Source.MUL:
                cells = self._multiplied(self.act[a[:, 0]], self.act[b], bias, scale, rule)
            else:
                values = self.acc.reshape(-1, c.block_in, FIELDS)[a] if source == Source.ACC else names.window(
                    np.moveaxis(self.act[a], 1, 2), np.ones(a.shape[1]))  # fmt: skip
                values = np.asarray((values.astype(np.int64) + made) % PRIMES, np.uint32)
                cells = names.requantize(values, bias, scale, rule)
        elif source == Source.MAX:
            cells = names.maximum(np.moveaxis(self.act[a], 1, 2))
        else:
            cells = self.act[a[:, 0]]
        if op["add"]:
            add = self.add
            sums = numerics.add_integer(_BYTES[:, None], _BYTES[None], add["ma"], add["mb"], add["c"], add["shift"],
                                        post["add_lo"], post["add_hi"])  # fmt: skip
            cells = names.combine(cells, self.act[b], sums)
        if op["lut"]:
            self.order.read("LUT", np.array([post["table"]]))
            cells = names.look_up(cells, self.values(self.lut[post["table"]], "tables"))
        self.write_act(dst, cells.reshape(-1, c.block_in, CELL))

    def _vector_wide(self, op: Op) -> None:
        """One byte of results of 16 bits, of the sums of high bytes and those of low ones behind."""
        c, names, loops = self.config, self.names, self.vector_loops
        inner, outer = nest([l[:2] for l in loops[: op["reduce"]]], 1)[0], nest(loops[op["reduce"] :], 4)
        if len(inner) != 2:
            raise NoRule(f"no rule for results of 16 bits of {len(inner)} sums")
        a = self.rows("ACC", op["a"] + outer[0][:, None] + inner, c.acc_vectors)
        units = c.block_in // self.unit
        self.order.read("ACC", (a[..., None] * units + np.arange(units)).ravel())
        prm = self.rows("PRM", op["prm"] + outer[3], c.prm_rows)
        bias, _, scale = self._parameters(prm)
        high, low = np.moveaxis(self.acc.reshape(-1, c.block_in, FIELDS)[a], 1, 0)
        found = wide.split(names, wide.results(names, high, low, bias, scale, op["low"], op["high"]))
        cells = names.cells(found[0 if op["byte"] == WideByte.HIGH else 1])
        self.write_act(self.rows("ACT", op["dst"] + outer[2], c.act_rows), cells)

    def _multiplied(self, a: Array, b: Array, bias: Array, scale: Array, rule: tuple[int, int, int, int]) -> Array:
        """Cells of products of bytes, requantised: a function of two bytes for each pair of bias and scale."""
        found = np.empty_like(a)
        zp, lo, hi, rounding = rule
        product = (_BYTES[:, None].astype(np.int64) - self.post["za"]) * (
            _BYTES[None].astype(np.int64) - self.post["zb"]
        )
        pairs = np.stack([bias.ravel(), scale.ravel().astype(np.int64)], axis=1)
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        for number, (one_bias, one_scale) in enumerate(distinct):
            here = which.reshape(bias.shape) == number
            table = numerics.requantize(numerics.wrap32(product + one_bias), np.uint32(one_scale), zp, lo, hi, rounding)
            found[here] = self.names.combine(a[here], b[here], table)
        return found


_BYTES = np.arange(256, dtype=np.uint8).view(np.int8)
