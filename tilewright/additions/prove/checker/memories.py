"""Scratchpads on names, and what LOAD and STORE move between them and memory, by the semantics of docs/isa.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.isa.codes import CodeError, CodeMode, Decoder
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Memory
from tilewright.isa.packing import unpacked
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION
from tilewright.prove.checker.cells import BYTES, CELL, ROOT, TABLE, VALUE, cases
from tilewright.prove.checker.fields import FIELDS, PRIMES
from tilewright.prove.checker.findings import Finding, NoRule
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.order import Order

Array = np.ndarray


@dataclass(frozen=True)
class Moved:
    """A region that the runtime moves to a row: of the constants, which are read, or of the arena, which are written.

    Attributes:
        space: "constant" or "arena".
        begins: bytes from its base to the region's, for each number of a row.
        number: the element of the row's number.
    """

    space: str
    begins: Array
    number: Array


def nest(levels: Sequence[Sequence[int]], operands: int) -> list[Array]:
    """Offsets of every operand at every index of a loop nest, level 0 fastest. A level is (count, strides...)."""
    found = [np.zeros(1, np.int64) for _ in range(operands)]
    for count, *strides in levels:
        index = np.arange(count, dtype=np.int64)[:, None]
        found = [(index * stride + offsets[None]).ravel() for stride, offsets in zip(strides, found, strict=True)]
    return found


class Memories:
    """Scratchpads and registers at the start of a program: cells, of which what nobody wrote has a name of its own.

    Args:
        constants: the constant region.
        arena: cells [bytes, CELL] of the arena, which STORE changes.
        windows: by the number of the region.
        label: of what nobody wrote.
    """

    def __init__(
        self, names: Names, config: NpuConfig, constants: bytes, arena: Array, windows: Mapping[int, Moved],
        ops: Sequence[Op], label: int,
    ) -> None:  # fmt: skip
        self.names, self.config, self.arena, self.windows, self.ops = names, config, arena, windows, ops
        self.constants = np.frombuffer(constants, np.int8)
        c = config

        def fresh(name: str, *shape: int) -> Array:
            return names.random(shape, name, label)

        self.act, self.wgt = fresh("ACT", c.act_rows, c.block_in), fresh("WGT", c.wgt_tiles, c.block_out, c.block_in)
        #: A bias and a scale of four bytes for each lane; EXP_SUM puts an element for the scale.
        self.prm, self.lut = fresh("PRM", c.prm_rows, c.block_in, 8), fresh("LUT", c.lut_tables, 256)
        self.acc = fresh("ACC", c.acc_rows * c.block_out)[:, VALUE].copy()
        self.row_maxima, self.row_norms = fresh("MAX", c.prm_rows), fresh("STAT", c.prm_rows)[:, VALUE]
        #: True if activations become weights: only then sums are needed of which quotients are made.
        self.weights_made = any(
            op.name == "LOAD" and op["target"] == Memory.WGT and op["region"] == ARENA_REGION for op in ops
        )
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

    def constant_weights(self) -> Array:
        """A copy of WGT, where what is no constant is unknown: a later run does not begin with it."""
        fixed = self.names.fixed(self.wgt)[..., None]
        return np.where(fixed, self.wgt, self.names.random(self.wgt.shape[:-1], "WGT of a later run"))

    def values(self, cells: Array, what: str) -> Array:
        """The bytes int8 [...] of constants. Raises `NoRule` for anything else."""
        if not self.names.fixed(cells).all():
            raise NoRule(f"no rule for {what} that are no constants, or that nothing loaded")
        return np.asarray(BYTES[cells[..., TABLE] - 1])

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
        self.order.write("ACT", dst)
        last = len(dst) - 1 - np.unique(dst[::-1], return_index=True)[1]
        self.act[dst[last]] = cells[last]

    # transfers

    @staticmethod
    def _inside(region: int, places: Array, memory: Array) -> None:
        """Raises Finding if a byte of a region lies behind its memory."""
        if places.size and places.max() >= len(memory):
            raise Finding(f"byte {int(places.max())} is beyond the {len(memory)} bytes of region {region}")

    def _memory(self, region: int, offsets: Array, nbytes: int) -> Array:
        """Cells [..., nbytes, CELL] of the bytes that begin at offsets."""
        window = self.windows.get(region)
        places = (offsets[..., None] + np.arange(nbytes)) % (1 << self.config.offset_bits)
        if window is not None and window.space == "constant":
            if not len(window.begins):
                raise NoRule(f"no rule for rows of region {region}, whose number may be any integer")
            self._inside(region, places + window.begins.max(), self.constants)
            return self.names.rows(window.number, self.constants[np.add.outer(window.begins, places)])
        if region not in (CONSTANT_REGION, ARENA_REGION):
            raise NoRule(f"no rule for reads of region {region}")
        self._inside(region, places, self.constants if region == CONSTANT_REGION else self.arena)
        if region == CONSTANT_REGION:
            return np.asarray(self.names.bytes[self.constants[places]])
        self.order.read("arena", places.ravel())
        return np.asarray(self.arena[places])

    def _load(self, op: Op) -> None:
        (count0, rows0, mem0), (count1, rows1, mem1) = self.boxes["LOAD"]
        left, right, top, bottom = (self.pad[side] for side in ("left", "right", "top", "bottom"))
        width, count = left + op["count"] + right, op["count"]
        if width * (top + count0 + bottom) * count1 == 0:
            raise Finding("the box has no row")
        target = Memory(op["target"])
        places = nest([(width, 1, 0), (top + count0 + bottom, rows0, mem0), (count1, rows1, mem1)], 2)
        x, y = nest([(width, 1, 0), (top + count0 + bottom, 0, 1), (count1, 0, 0)], 2)
        data = (x >= left) & (x < left + count) & (y >= top) & (y < top + count0)
        rows = self.rows(target.name, op["row"] + places[0], target.rows(self.config))
        self.order.write(target.name, rows)
        if len(np.unique(rows)) != len(rows):
            raise NoRule("no rule for a box that writes a row twice")
        packed, row_bytes = op.name == "LOAD_PACKED", target.row_bytes(self.config)
        nbytes = row_bytes // 2 if packed else row_bytes
        cells = np.empty((len(rows), row_bytes, CELL), np.uint32)
        cells[:] = self.names.bytes[self.pad["fill"] & 255]
        offsets = (op["offset"] + places[1] - top * mem0 + (x - left) * nbytes)[data]
        found = self._memory(op["region"], offsets, nbytes)
        if packed:
            weights = unpacked(self.values(found, "packed weights").view(np.uint8))
            found = self.names.bytes[weights].reshape(-1, row_bytes, CELL)
        cells[data] = found
        memory = {Memory.ACT: self.act, Memory.WGT: self.wgt, Memory.PRM: self.prm, Memory.LUT: self.lut}[target]
        memory[rows] = cells.reshape(len(rows), *memory.shape[1:])

    def _load_coded(self, op: Op) -> None:
        if op["region"] != CONSTANT_REGION or self.decoder is None:
            raise NoRule("no rule for coded weights outside of the constants")
        c = self.config
        start = op["offset"] // c.bus_bytes * c.bus_bytes

        def read() -> bytes:
            cells = self._memory(CONSTANT_REGION, np.array([start]), op["beats"] * c.bus_bytes)
            return self.values(cells, "codes").tobytes()

        size = op["count"] * c.tile_bytes // c.weight_codes
        try:
            rounds = list(self.decoder.load(op["mode"], size, op["beats"], read))
        except CodeError as error:
            raise Finding(f"coded weights: {error}") from None
        if op["mode"] == CodeMode.WEIGHTS:
            rows = self.rows("WGT", op["row"] + np.arange(op["count"]), c.wgt_tiles)
            self.order.write("WGT", rows)
            tiles = np.frombuffer(b"".join(rounds), np.int8)
            self.wgt[rows] = self.names.bytes[tiles].reshape(-1, *self.wgt.shape[1:])

    def _parameters(self, prm: Array, sums: bool = False) -> tuple[Array, Array, Array]:
        """Constant biases, int64, elements of those that the program made, and patterns of scales, [n, block_in] each,
        in rows of PRM [n]. Biases that the program made are for sums only."""
        self.order.read("PRM", prm)
        pairs = self.prm[prm]
        scales = self.values(pairs[:, :, 4:], "scales").view(np.uint32)[..., 0]
        made = ~self.names.fixed(pairs[:, :, :4]).all(axis=(1, 2))
        biases, elements = np.zeros(scales.shape, np.int64), np.zeros((*scales.shape, FIELDS), np.uint32)
        biases[~made] = self.values(pairs[~made, :, :4], "biases").view(np.int32)[..., 0]
        if made.any() and not sums:
            raise NoRule("no rule for biases that the program made but with sums")
        if made.any():
            elements[made] = self._joined(pairs[made, :, :4])
        return biases, elements, scales

    def _joined(self, cells: Array) -> Array:
        """Elements of integers that the program made, of their bytes [..., 4, CELL]. Each byte is a part of one sum,
        but the upper two, which are those of one integer of 16 bits."""
        names = self.names
        flipped = BYTES ^ np.int8(-128)
        low, second = (names.look_up(cells[..., i, :], flipped)[..., VALUE].astype(np.int64) + 128 for i in (0, 1))
        high, sign = cells[..., 2, :], cells[..., 3, :]
        fixed = np.asarray(names.fixed(cells[..., 2:, :]).all(axis=-1))
        ends = [BYTES[np.where(fixed, part[..., TABLE] - 1, 0)].astype(np.int64) for part in (high, sign)]
        found = np.where(fixed[..., None], (ends[0] % 256 + 256 * ends[1])[..., None] % PRIMES, -1)
        here, facts = names.reach.find(high[..., ROOT])
        here[here] = same = (high[..., ROOT] == sign[..., ROOT]).all(axis=-1)[here]
        upper = found[here]
        for (one, two, least, most), at in cases(
            np.concatenate([high[here][:, TABLE:], sign[here][:, TABLE:], facts[same]], axis=1)
        ):
            both = names.table(one).view(np.uint8) + 256 * names.table(two).astype(np.int64)
            line = names.line(lambda v, both=both: both[v & 255], least, most)  # type: ignore[misc]
            if line is not None:
                upper[at] = (high[here][at][:, ROOT].astype(np.int64) * line[0] + line[1]) % PRIMES
        found[here] = upper
        total = (low + 256 * second + 65536 * found) % PRIMES
        here, sums = names.whole.find(cells[..., 0, VALUE])
        here[here] = exact = (names.bytes_of(sums.astype(np.uint32))[..., VALUE] == cells[here][..., VALUE]).all((1, 2))
        total[here] = sums[exact]
        if (found < 0)[~here].any():
            raise NoRule("no rule for biases from the arena whose upper bytes are not those of one integer")
        return np.asarray(total, np.uint32)

    def _store(self, op: Op) -> None:
        (count0, rows0, mem0), (count1, rows1, mem1) = self.boxes["STORE"]
        c = self.config
        whole = Moved("arena", np.zeros(1, np.int64), np.zeros(FIELDS, np.uint32))
        window = whole if op["region"] == ARENA_REGION else self.windows.get(op["region"])
        if window is None or window.space != "arena":
            raise Finding(f"region {op['region']} must not be written")
        at, offsets = nest([(op["count"], 1, c.block_in), (count0, rows0, mem0), (count1, rows1, mem1)], 2)
        rows = self.rows("ACT", op["row"] + at, c.act_rows)
        places = (op["offset"] + offsets[:, None] + np.arange(c.block_in)) % (1 << c.offset_bits)
        places = np.add.outer(window.begins, places)  # wherever the region begins
        self._inside(op["region"], places, self.arena)
        self.order.read("ACT", rows)
        self.order.write("arena", places.ravel())
        if len(np.unique(places[:, :, 0])) != places[:, :, 0].size:
            raise NoRule("no rule for a box that writes a byte twice")
        cells = self.act[rows]
        if len(places) > 1:
            begin = np.arange(len(places))[:, None, None]
            cells = self.names.put(self.arena[places][..., VALUE], begin, window.number, cells[..., VALUE])
        self.arena[places] = cells
