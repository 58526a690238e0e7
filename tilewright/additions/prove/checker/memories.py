"""Scratchpads on names, and what LOAD and STORE move between them and memory, by the semantics of docs/isa.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.isa.codes import CodeError, CodeMode, Decoder
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Memory
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION
from tilewright.prove.checker.cells import CELL, ROOT, TABLE, VALUE
from tilewright.prove.checker.fields import FIELDS, PRIMES, as_integers
from tilewright.prove.checker.findings import Finding, NoRule
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.order import Order

Array = np.ndarray
Window = tuple[int, int, Array]


def nest(levels: Sequence[Sequence[int]], operands: int) -> list[Array]:
    """Offsets of every operand at every index of a loop nest, level 0 fastest. A level is (count, strides...)."""
    found = [np.zeros(1, np.int64) for _ in range(operands)]
    for count, *strides in levels:
        index = np.arange(count, dtype=np.int64)[:, None]
        found = [(index * stride + offsets[None]).ravel() for stride, offsets in zip(strides, found, strict=True)]
    return found


class Memories:
    """Scratchpads and registers at the start of a program: what nobody wrote has a name of its own.

    Args:
        constants: the constant region.
        arena: cells [bytes, CELL] of the arena, which STORE changes.
        windows: of regions that begin at a row of the arena: number of rows, bytes from one to the next, the element
            of the row's number.
        log: receives the elements of everything VECTOR makes, None to leave that out.
    """

    def __init__(
        self, names: Names, config: NpuConfig, constants: bytes, arena: Array, windows: Mapping[int, Window],
        ops: Sequence[Op], label: int,
        log: list[Array] | None = None,
    ) -> None:  # fmt: skip
        self.names, self.config, self.arena, self.windows, self.ops, self.log = names, config, arena, windows, ops, log
        self.constants = np.frombuffer(constants, np.int8)
        c = config
        self.act = names.random((c.act_rows, c.block_in), "ACT", label)
        self.acc = names.random((c.acc_rows * c.block_out,), "ACC", label)[:, VALUE].copy()
        self.wgt = np.zeros((c.wgt_tiles, c.block_out, c.block_in), np.int8)
        self.wgt_cells: dict[int, Array] = {}  # tiles that are no constants: cells
        #: True if activations become weights: only then sums are needed of which quotients are made.
        self.weights_made = any(
            op.name == "LOAD" and op["target"] == Memory.WGT and op["region"] == ARENA_REGION for op in ops
        )
        self.wgt_known = np.zeros(c.wgt_tiles, bool)
        self.prm = np.zeros((c.prm_rows, c.block_in, 2), np.uint32)
        self.prm_known = np.zeros(c.prm_rows, bool)
        self.prm_bias: dict[int, Array] = {}  # rows that are no constants: elements [block_in, FIELDS]
        self.prm_made = np.zeros(c.prm_rows, bool)  # scales of ROW, which `row_scales` has
        self.row_maxima = names.random((c.prm_rows,), "MAX", label)
        self.row_scales, self.row_norms = (
            names.random((c.prm_rows,), name, label)[:, VALUE] for name in ("scale", "STAT")
        )
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

    def constant_weights(self) -> tuple[Array, Array]:
        """Copies of WGT and of which tiles are known, without those made of activations, which are of this run."""
        known = self.wgt_known.copy()
        known[list(self.wgt_cells)] = False
        return np.where(known[:, None, None], self.wgt, 0), known

    def rows(self, memory: str, offsets: Array, size: int) -> Array:
        """Row addresses, modulo the address space, inside of the memory."""
        found = offsets % (1 << self.config.address_bits)
        if (found >= size).any():
            raise Finding(f"{memory} row {int(found.max())} is beyond its {size} rows")
        return found

    def check_steps(self, rows: Array, dst: Array) -> None:
        """Checks that no step reads a row that an earlier step of the instruction writes."""
        written = np.full(self.config.act_rows, len(dst), np.int64)
        np.minimum.at(written, dst, np.arange(len(dst)))
        late = written[rows] < np.arange(len(dst))[:, None]
        if late.any():
            raise Finding(f"a step reads ACT row {int(rows[late][0])}, which an earlier step of the same instruction "
                          "writes")  # fmt: skip

    def write_act(self, dst: Array, cells: Array) -> None:
        """Writes what VECTOR made, [n, block_in, CELL], to ACT: the last of several results for a row stays."""
        if self.log is not None:
            self.log.append(cells[..., VALUE])
        self.order.write("ACT", dst)
        last = len(dst) - 1 - np.unique(dst[::-1], return_index=True)[1]
        self.act[dst[last]] = cells[last]

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
        if dynamic and target == Memory.LUT:
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
                for row, tile in zip(rows[data], self.arena[bytes_], strict=True):
                    known, value = as_integers(tile[..., VALUE])
                    self.wgt[row] = value.reshape(c.block_out, c.block_in)
                    if not known.all():
                        self.wgt_cells[int(row)] = tile.reshape(c.block_out, c.block_in, CELL)
        elif target == Memory.PRM:
            self.prm_made[rows] = False
            for row in rows:
                self.prm_bias.pop(int(row), None)
            if dynamic:
                self._load_made(rows[data], self.arena[bytes_].reshape(-1, c.block_in, 8, CELL), values, data)
            self.prm[rows], self.prm_known[rows] = values.view(np.uint32).reshape(-1, c.block_in, 2), True
        else:
            self.lut[rows], self.lut_known[rows] = values, True

    def _load_made(self, rows: Array, pairs: Array, values: Array, data: Array) -> None:
        """Takes biases that the program made, and the values of constants. Bytes are parts of one sum each, but the
        upper two, which are those of one integer of 16 bits."""
        names = self.names
        known, constant = as_integers(pairs[..., VALUE])
        if not known[:, :, 4:].all():
            raise NoRule("no rule for scales from the arena that are no constants")
        values[data] = np.where(known, constant, 0).reshape(len(rows), -1)
        flipped = np.arange(256, dtype=np.uint8).view(np.int8) ^ np.int8(-128)
        low, second = (names.look_up(pairs[:, :, i], flipped)[..., VALUE].astype(np.int64) + 128 for i in (0, 1))
        high, sign = pairs[:, :, 2], pairs[:, :, 3]
        here, facts = names.reach.find(high[..., ROOT])
        wide = constant[:, :, 2] % 256 + 256 * constant[:, :, 3]
        found = np.where((known[:, :, 2] & known[:, :, 3])[..., None], wide[..., None] % PRIMES, -1)
        same = (high[..., ROOT] == sign[..., ROOT]).all(axis=-1)[here]
        at = tuple(axis[same] for axis in np.nonzero(here))
        cases = np.concatenate([np.stack([high[at][:, TABLE], sign[at][:, TABLE]], axis=1), facts[same]], axis=1)
        for case in np.unique(cases, axis=0):
            upper, top, least, most = (int(v) for v in case)
            both = names.table(upper).view(np.uint8) + 256 * names.table(top).astype(np.int64)
            line = names.line(lambda v, both=both: both[v & 255], least, most)  # type: ignore[misc]
            if line is not None:
                place = tuple(axis[(cases == case).all(axis=1)] for axis in at)
                found[place] = (high[place][:, ROOT].astype(np.int64) * line[0] + line[1]) % PRIMES
        total = (low + 256 * second + 65536 * found) % PRIMES
        here, sums = names.whole.find(pairs[:, :, 0, VALUE])
        whole = np.zeros(total.shape, np.uint32)
        whole[here] = sums
        here &= (names.bytes_of(whole)[..., VALUE] == pairs[:, :, :4, VALUE]).all(axis=(2, 3))
        total[here] = whole[here]
        if (found < 0)[~here].any():
            raise NoRule("no rule for biases from the arena whose upper bytes are not those of one integer")
        for row, elements in zip(rows, total, strict=True):
            self.prm_bias[int(row)] = elements

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
        rows_of, stride, number = self.windows.get(op["region"], (1, 0, np.zeros(FIELDS, np.uint32)))
        if op["region"] != ARENA_REGION and op["region"] not in self.windows:
            raise Finding(f"region {op['region']} must not be written")
        at, offsets = nest([(op["count"], 1, c.block_in), (count0, rows0, mem0), (count1, rows1, mem1)], 2)
        rows = self.rows("ACT", op["row"] + at, c.act_rows)
        places = (op["offset"] + offsets[:, None] + np.arange(c.block_in)) % (1 << c.offset_bits)
        places = places + stride * np.arange(rows_of)[:, None, None]  # wherever the region begins
        if places.max() >= len(self.arena):
            raise Finding(f"byte {int(places.max())} is beyond the {len(self.arena)} bytes of the arena")
        self.order.read("ACT", rows)
        self.order.write("arena", places.ravel())
        if len(np.unique(places[:, :, 0])) != places[:, :, 0].size:
            raise NoRule("no rule for a box that writes a byte twice")
        cells = self.act[rows]
        if rows_of > 1:
            begin = np.arange(rows_of)[:, None, None]
            cells = self.names.put(self.arena[places][..., VALUE], begin, number, cells[..., VALUE])
        self.arena[places] = cells
