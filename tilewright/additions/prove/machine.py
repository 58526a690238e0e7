"""The machine on names: the instructions of one NPU step, by the semantics of docs/isa.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.codes import CodeError, CodeMode, Decoder
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import DecodeError, Op, check
from tilewright.isa.instructions import Memory, Source
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION
from tilewright.prove.findings import Finding, NoRule
from tilewright.prove.names import CELL, FIELDS, PRIMES, VALUE, Names, as_integers, field_product, matrix_product
from tilewright.prove.names import residues as residues_of
from tilewright.prove.order import Order

Array = np.ndarray


def nest(levels: Sequence[Sequence[int]], operands: int) -> list[Array]:
    """Offsets of every operand at every index of a loop nest, level 0 fastest. A level is (count, strides...)."""
    found = [np.zeros(1, np.int64) for _ in range(operands)]
    for count, *strides in levels:
        index = np.arange(count, dtype=np.int64)[:, None]
        found = [(index * stride + offsets[None]).ravel() for stride, offsets in zip(strides, found, strict=True)]
    return found


class Machine:
    """Scratchpads and registers at the start of a program: what nobody wrote has a name of its own.

    Args:
        constants: the constant region.
        arena: cells [bytes, CELL] of the arena, which STORE changes.
        log: receives the elements of everything VECTOR makes, None to leave that out.
    """

    def __init__(
        self, names: Names, config: NpuConfig, constants: bytes, arena: Array, ops: Sequence[Op], label: int,
        log: list[Array] | None = None,
    ) -> None:  # fmt: skip
        self.names, self.config, self.arena, self.ops, self.log = names, config, arena, ops, log
        self.constants = np.frombuffer(constants, np.int8)
        c = config
        self.act = names.random((c.act_rows, c.block_in), "ACT", label)
        self.acc = names.random((c.acc_rows * c.block_out,), "ACC", label)[:, VALUE].copy()
        self.wgt = np.zeros((c.wgt_tiles, c.block_out, c.block_in), np.int8)
        self.wgt_cells: dict[int, Array] = {}  # tiles that are no constants: elements [block_out, block_in, FIELDS]
        self.wgt_known = np.zeros(c.wgt_tiles, bool)
        self.prm = np.zeros((c.prm_rows, c.block_in, 2), np.uint32)
        self.prm_known = np.zeros(c.prm_rows, bool)
        self.lut = np.zeros((c.lut_tables, 256), np.int8)
        self.lut_known = np.zeros(c.lut_tables, bool)
        self.unit = min(c.block_in, c.block_out)  # lanes of ACC that are ordered as one
        self.order = Order(ops, {
            "ACT": c.act_rows, "WGT": c.wgt_tiles, "PRM": c.prm_rows, "LUT": max(1, c.lut_tables),
            "ACC": c.acc_rows * c.block_out // self.unit, "arena": len(arena),
        })  # fmt: skip
        self.gemm_loops = [(1, 0, 0, 0)] * c.gemm_loops
        self.vector_loops = [(1, 0, 0, 0, 0)] * c.vector_loops
        self.boxes = {"LOAD": [(1, 0, 0)] * 2, "STORE": [(1, 0, 0)] * 2}
        self.pad, self.post, self.add = (Op(ops[-1].instruction) for _ in range(3))
        self.decoder = Decoder(c) if c.weight_codes else None
        self._last_rows: tuple[Array, Array] | None = None

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
            case "LOAD":
                self._load(op)
            case "LOAD_CODED":
                self._load_coded(op)
            case "GEMM":
                self._gemm(op)
            case "DEPTHWISE":
                self._depthwise(op)
            case "VECTOR":
                self._vector(op)
            case "STORE":
                self._store(op)
            case name if name.endswith("_SYNC"):
                pass
            case name:
                raise NoRule(f"no rule for {name}")

    def rows(self, memory: str, offsets: Array, size: int) -> Array:
        """Row addresses, modulo the address space, inside of the memory."""
        found = offsets % (1 << self.config.address_bits)
        if (found >= size).any():
            raise Finding(f"{memory} row {int(found.max())} is beyond its {size} rows")
        return found

    # transfers

    def _memory(self, region: int, offsets: Array, nbytes: int) -> tuple[Array, bool]:
        """Bytes that begin at offsets, [.., nbytes] places, and True if they are those of the arena."""
        if region not in (CONSTANT_REGION, ARENA_REGION):
            raise NoRule(f"no rule for region {region}")
        size = len(self.constants) if region == CONSTANT_REGION else len(self.arena)
        places = (offsets[..., None] + np.arange(nbytes)) % (1 << self.config.offset_bits)
        if places.size and places.max() >= size:
            raise Finding(f"byte {int(places.max())} is beyond the {size} bytes of region {region}")
        if region == ARENA_REGION:
            self.order.read("arena", places.ravel())
        return places, region == ARENA_REGION

    def _load(self, op: Op) -> None:
        (count0, rows0, mem0), (count1, rows1, mem1) = self.boxes["LOAD"]
        left, right, top, bottom = (self.pad[side] for side in ("left", "right", "top", "bottom"))
        width, count = left + op["count"] + right, op["count"]
        if width * (top + count0 + bottom) * count1 == 0:
            raise Finding("the box has no row")
        target = Memory(op["target"])
        places = nest([(width, 1, 0), (top + count0 + bottom, rows0, mem0), (count1, rows1, mem1)], 2)
        index = nest([(width, 1, 0), (top + count0 + bottom, 0, 1), (count1, 0, 0)], 2)
        x, y = index[0], index[1]
        data = (x >= left) & (x < left + count) & (y >= top) & (y < top + count0)
        rows = self.rows(target.name, op["row"] + places[0], target.rows(self.config))
        self.order.write(target.name, rows)
        nbytes = target.row_bytes(self.config)
        offsets = (op["offset"] + places[1] - top * mem0 + (x - left) * nbytes)[data]
        bytes_, dynamic = self._memory(op["region"], offsets, nbytes)
        fill = ((self.pad["fill"] & 255) ^ 128) - 128
        if len(np.unique(rows)) != len(rows):
            raise NoRule("no rule for a box that writes a row twice")
        if target == Memory.ACT:
            self.act[rows[~data]] = self.names.bytes[fill]
            self.act[rows[data]] = self.arena[bytes_] if dynamic else self.names.bytes[self.constants[bytes_]]
            return
        if dynamic and target != Memory.WGT:
            raise NoRule(f"no rule for {target.name} from the arena")
        values = np.full((len(rows), nbytes), fill, np.int8)
        if not dynamic:
            values[data] = self.constants[bytes_]
        c = self.config
        if target == Memory.WGT:
            self.wgt[rows], self.wgt_known[rows] = values.reshape(-1, c.block_out, c.block_in), True
            for row in rows:
                self.wgt_cells.pop(int(row), None)
            if dynamic:
                for row, tile in zip(rows[data], self.arena[bytes_][..., VALUE], strict=True):
                    known, value = as_integers(tile)
                    self.wgt[row] = value.reshape(c.block_out, c.block_in)
                    if not known.all():
                        self.wgt_cells[int(row)] = tile.reshape(c.block_out, c.block_in, FIELDS)
        elif target == Memory.PRM:
            self.prm[rows], self.prm_known[rows] = values.view(np.uint32).reshape(-1, c.block_in, 2), True
        else:
            self.lut[rows], self.lut_known[rows] = values, True

    def _load_coded(self, op: Op) -> None:
        if op["region"] != CONSTANT_REGION or self.decoder is None:
            raise NoRule("no rule for coded weights outside of the constants")
        c = self.config
        start = op["offset"] // c.bus_bytes * c.bus_bytes

        def read() -> bytes:
            places, _ = self._memory(CONSTANT_REGION, np.array([start]), op["beats"] * c.bus_bytes)
            return bytes(self.constants[places])

        try:
            rounds = list(
                self.decoder.load(op["mode"], op["count"] * c.tile_bytes // c.weight_codes, op["beats"], read)
            )
        except CodeError as error:
            raise Finding(f"coded weights: {error}") from None
        if op["mode"] == CodeMode.WEIGHTS:
            rows = self.rows("WGT", op["row"] + np.arange(op["count"]), c.wgt_tiles)
            self.order.write("WGT", rows)
            tiles = np.frombuffer(b"".join(rounds), np.int8)
            self.wgt[rows], self.wgt_known[rows] = tiles.reshape(-1, c.block_out, c.block_in), True
            for row in rows:
                self.wgt_cells.pop(int(row), None)

    def _store(self, op: Op) -> None:
        (count0, rows0, mem0), (count1, rows1, mem1) = self.boxes["STORE"]
        c = self.config
        if op["region"] != ARENA_REGION:
            raise Finding(f"region {op['region']} must not be written")
        at, offsets = nest([(op["count"], 1, c.block_in), (count0, rows0, mem0), (count1, rows1, mem1)], 2)
        rows = self.rows("ACT", op["row"] + at, c.act_rows)
        places = (op["offset"] + offsets[:, None] + np.arange(c.block_in)) % (1 << c.offset_bits)
        if places.max() >= len(self.arena):
            raise Finding(f"byte {int(places.max())} is beyond the {len(self.arena)} bytes of the arena")
        self.order.read("ACT", rows)
        self.order.write("arena", places.ravel())
        if len(np.unique(offsets)) != len(offsets):
            raise NoRule("no rule for a box that writes a byte twice")
        self.arena[places] = self.act[rows]

    # products

    def _weights(self, tiles: Array) -> Array:
        """Tiles [..., block_out, block_in], integers; elements [..., FIELDS] if one of them is no constant."""
        self.order.read("WGT", tiles.ravel())
        if not self.wgt_known[tiles].all():
            raise Finding(f"WGT tile {int(tiles[~self.wgt_known[tiles]][0])} was never loaded")
        if not self.wgt_cells or not any(int(t) in self.wgt_cells for t in np.unique(tiles)):
            return np.asarray(self.wgt[tiles])
        found = residues_of(self.wgt[tiles])
        for place in np.ndindex(tiles.shape):
            if int(tiles[place]) in self.wgt_cells:
                found[place] = self.wgt_cells[int(tiles[place])]
        return found

    def _accumulate(self, rows: Array, lanes: int, sums: Array, accumulate: bool) -> None:
        """Writes sums [n, lanes, FIELDS] to ACC rows of so many lanes, or adds them."""
        units = lanes // self.unit
        self.order.write("ACC", (rows[:, None] * units + np.arange(units)).ravel())
        acc = self.acc.reshape(-1, lanes, FIELDS)
        distinct, _first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        if len(distinct) < len(rows):
            last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
            if accumulate:
                total = np.zeros((len(distinct), lanes, FIELDS), np.int64)
                np.add.at(total, inverse.ravel(), sums.astype(np.int64))
                rows, sums = distinct, total % PRIMES
            else:
                rows, sums = distinct, sums[last]
        if accumulate:
            sums = (acc[rows].astype(np.int64) + sums) % PRIMES
        acc[rows] = sums.astype(np.uint32)

    def _gemm(self, op: Op) -> None:
        c, loops = self.config, self.gemm_loops
        self.names.count("product of the array")
        inner, outer = nest([l[:3] for l in loops[: op["reduce"]]], 2), nest(loops[op["reduce"] :], 3)
        acc = self.rows("ACC", op["acc"] + outer[2], c.acc_rows)
        starts, which = np.unique(outer[1], return_inverse=True)
        groups = [np.flatnonzero(which.ravel() == i) for i in range(len(starts))]
        sums = np.empty((len(acc), c.block_out, FIELDS), np.uint32)
        together = len(groups) > 1 and all(np.array_equal(outer[0][g], outer[0][groups[0]]) for g in groups)
        for members in [groups] if together else [[g] for g in groups]:
            here = members[0]
            rows = self.rows("ACT", op["act"] + outer[0][here][:, None] + inner[0], c.act_rows)
            self.order.read("ACT", rows.ravel())
            values = self.act[rows, :, VALUE].reshape(len(here), -1, FIELDS)
            tiles = self.rows("WGT", op["wgt"] + outer[1][[g[0] for g in members]][:, None] + inner[1], c.wgt_tiles)
            weights = self._weights(tiles)  # [groups, inner, out, in]
            w = weights.transpose(1, 3, 0, 2, *range(4, weights.ndim))  # [inner, in, groups, out]
            w = w.reshape(values.shape[1], len(members) * c.block_out, *weights.shape[4:])
            product = matrix_product(values, w) if weights.ndim == 4 else field_product(values, w)
            product = product.reshape(len(here), len(members), c.block_out, FIELDS)
            for i, group in enumerate(members):
                sums[group] = product[:, i]
        self._accumulate(acc, c.block_out, sums, bool(op["accumulate"]))

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
        weights = self._weights(tiles)[:, :lanes]
        if weights.ndim > 3:
            raise NoRule("no rule for a window with weights that are no constants")
        sums = np.zeros((len(at), lanes, FIELDS), np.int64)
        for slot in range(c.block_in):
            w = weights[which.ravel(), :, slot].astype(np.int64)
            source = at - slot - op["delay"] * (slot // c.window_segment)
            used = np.flatnonzero((source >= 0) & w.any(axis=1))
            if len(used):
                slice_ = slice(op["slice"] * lanes, (op["slice"] + 1) * lanes)
                values = self.act[pushed[source[used]], slice_, VALUE].astype(np.int64)
                sums[used] += values * w[used][..., None]
        self._accumulate(acc, lanes, (sums % PRIMES).astype(np.uint32), bool(op["accumulate"]))

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
            self._check_steps(rows.reshape(len(dst), -1), dst)
        if source in (Source.ACC, Source.MUL, Source.SUM):
            prm = self.rows("PRM", op["prm"] + outer[3], c.prm_rows)
            self.order.read("PRM", prm)
            if not self.prm_known[prm].all():
                raise Finding(f"PRM row {int(prm[~self.prm_known[prm]][0])} was never loaded")
            bias, scale = self.prm[prm, :, 0].view(np.int32).astype(np.int64), self.prm[prm, :, 1]
            rule = (post["zp"], post["lo"], post["hi"], op["rounding"])
            if source == Source.MUL:
                cells = self._multiplied(self.act[a[:, 0]], self.act[b], bias, scale, rule)
            else:
                values = self.act[a, :, VALUE].astype(np.int64).sum(axis=1) if source == Source.SUM else (
                    self.acc.reshape(-1, c.block_in, FIELDS)[a].astype(np.int64))  # fmt: skip
                total = ((values + bias[..., None] % PRIMES) % PRIMES).astype(np.uint32)
                cells = names.requantize(total, scale, *rule)
        elif source == Source.MAX:
            cells = names.maximum(np.moveaxis(self.act[a], 1, 2))
        else:
            cells = self.act[a[:, 0]]
        if self.log is not None:
            self.log.append(cells[..., VALUE])
        if op["add"]:
            add = self.add
            sums = numerics.add_integer(_BYTES[:, None], _BYTES[None], add["ma"], add["mb"], add["c"], add["shift"],
                                        post["add_lo"], post["add_hi"])  # fmt: skip
            cells = names.combine(cells, self.act[b], sums)
        if op["lut"]:
            self.order.read("LUT", np.array([post["table"]]))
            if not self.lut_known[post["table"]]:
                raise Finding(f"LUT table {post['table']} was never loaded")
            cells = names.look_up(cells, self.lut[post["table"]])
        if self.log is not None:
            self.log.append(cells[..., VALUE])
        self.order.write("ACT", dst)
        last = len(dst) - 1 - np.unique(dst[::-1], return_index=True)[1]
        self.act[dst[last]] = cells.reshape(-1, c.block_in, CELL)[last]

    def _check_steps(self, rows: Array, dst: Array) -> None:
        """Checks that no step reads a row that an earlier step of the instruction writes."""
        written = np.full(self.config.act_rows, len(dst), np.int64)
        np.minimum.at(written, dst, np.arange(len(dst)))
        late = written[rows] < np.arange(len(dst))[:, None]
        if late.any():
            raise Finding(f"a step reads ACT row {int(rows[late][0])}, which an earlier step of the same instruction "
                          "writes")  # fmt: skip

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
