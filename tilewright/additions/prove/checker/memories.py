"""Scratchpads on names, and what LOAD and STORE move between them and memory, by the semantics of docs/isa.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.isa.codes import CodeError, CodeMode, Decoder
from tilewright.isa.encoding import Op
from tilewright.isa.encoding import op as new_op
from tilewright.isa.instructions import Memory
from tilewright.isa.packing import unpacked
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION, Program
from tilewright.prove.checker.cells import BYTES, CELL, ROOT, TABLE, VALUE
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array
from tilewright.prove.checker.graph import Finding, NoRule
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.order import Order


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
        arena: cells [bytes, CELL] of the arena, which STORE changes.
        windows: by the number of the region.
        ops: all of the step.
        label: of what nobody wrote.
    """

    def __init__(
        self, names: Names, program: Program, arena: Array, windows: Mapping[int, Moved], ops: Sequence[Op], label: int
    ) -> None:
        self.names, self.config, self.arena, self.windows, self.ops = names, program.config, arena, windows, ops
        self.constants = np.frombuffer(program.constants, np.int8)
        c = self.config

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
        self.unit = c.dw_lanes  # lanes of ACC that are ordered as one
        self.sizes = {"ACT": c.act_rows, "WGT": c.wgt_tiles, "PRM": c.prm_rows, "LUT": c.lut_tables, "STAT": c.prm_rows,
                      "ACC": c.acc_rows * c.block_out // self.unit, "arena": len(arena)}  # fmt: skip
        self.order = Order(ops, self.sizes)
        self.settings = {name: new_op(name) for name in ("LOAD_PAD", "VECTOR_POST", "VECTOR_ADD")}
        levels = {"GEMM_LOOP": c.gemm_loops, "VECTOR_LOOP": c.vector_loops, "LOAD_DIM": 2, "STORE_DIM": 2}
        self.loops = {name: [new_op(name, count=1)] * n for name, n in levels.items()}
        self.decoder = Decoder(c) if c.weight_codes else None

    def nest(self, kind: str, first: int, last: int | None, *strides: str) -> list[Array]:
        """Offsets by these strides at every index of some levels of a loop nest."""
        return nest([(l["count"], *(l[s] for s in strides)) for l in self.loops[kind][first:last]], len(strides))

    def constant_weights(self) -> Array:
        """A copy of WGT, where what is no constant is unknown: a later run does not begin with it."""
        fixed = self.names.fixed(self.wgt)[..., None]
        return np.where(fixed, self.wgt, self.names.random(self.wgt.shape[:-1], "WGT of a later run"))

    def values(self, cells: Array, what: str) -> Array:
        """The bytes int8 [...] of constants. Raises `NoRule` for anything else."""
        if not self.names.fixed(cells).all():
            raise NoRule(f"no rule for {what} that are no constants, or that nothing loaded")
        return np.asarray(BYTES[cells[..., TABLE] - 1])

    def rows(self, memory: str, offsets: Array) -> Array:
        """Row addresses, modulo the address space, inside of the memory."""
        found = np.asarray(offsets % (1 << self.config.address_bits))
        if (found >= self.sizes[memory]).any():
            raise Finding(f"{memory} row {int(found.max())} is beyond its {self.sizes[memory]} rows")
        return found

    def reads(self, memory: str, offsets: Array, dst: Array | None = None) -> Array:
        """Row addresses [steps, ...] that are read: none is one that an earlier step of the instruction writes.

        Args:
            dst: row of ACT that each step writes.
        """
        rows = self.rows(memory, offsets)
        self.order.read(memory, rows.ravel())
        if dst is not None:
            written = np.full(self.config.act_rows, len(dst), np.int64)
            np.minimum.at(written, dst, np.arange(len(dst)))
            late = written[rows.reshape(len(dst), -1)] < np.arange(len(dst))[:, None]
            if late.any():
                raise Finding(f"a step reads ACT row {int(rows.reshape(late.shape)[late][0])}, which an earlier step "
                              "of the same instruction writes")  # fmt: skip
        return rows

    def acc_rows(self, access: Callable[[str, Array], None], offsets: Array, lanes: int) -> Array:
        """Addresses of ACC rows of so many lanes, which are read or written: `access` of the order."""
        units = lanes // self.unit
        places = (offsets[..., None] % (1 << self.config.address_bits)) * units + np.arange(units)
        if (places >= self.sizes["ACC"]).any():
            raise Finding(f"ACC row {int(places.max()) // units} is beyond its {self.sizes['ACC'] // units} rows")
        access("ACC", places.ravel())
        return np.asarray(places[..., 0] // units)

    @staticmethod
    def last(rows: Array) -> tuple[Array, Array]:
        """The distinct rows, and where each is the last time: of several results for a row the last stays."""
        distinct, place = np.unique(rows[::-1], return_index=True)
        return distinct, len(rows) - 1 - place

    def write_act(self, dst: Array, cells: Array) -> None:
        """Writes what VECTOR made, [n, block_in, CELL], to ACT."""
        self.order.write("ACT", dst)
        rows, last = self.last(dst)
        self.act[rows] = cells[last]

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
        (count0, rows0, mem0), (count1, rows1, mem1) = self._box("LOAD_DIM")
        pad, count, target = self.settings["LOAD_PAD"], op["count"], Memory(op["target"])
        left, top = pad["left"], pad["top"]
        width, height = left + count + pad["right"], top + count0 + pad["bottom"]
        if width * height * count1 == 0:
            raise Finding("the box has no row")
        row, memory, x, y = nest([(width, 1, 0, 1, 0), (height, rows0, mem0, 0, 1), (count1, rows1, mem1, 0, 0)], 4)
        data = (x >= left) & (x < left + count) & (y >= top) & (y < top + count0)
        rows = self.rows(target.name, op["row"] + row)
        self.order.write(target.name, rows)
        if len(np.unique(rows)) != len(rows):
            raise NoRule("no rule for a box that writes a row twice")
        packed, row_bytes = op.name == "LOAD_PACKED", target.row_bytes(self.config)
        nbytes = row_bytes // 2 if packed else row_bytes
        cells = np.empty((len(rows), row_bytes, CELL), np.uint32)
        cells[:] = self.names.bytes[pad["fill"] & 255]
        found = self._memory(op["region"], (op["offset"] + memory - top * mem0 + (x - left) * nbytes)[data], nbytes)
        if packed:
            weights = unpacked(self.values(found, "packed weights").view(np.uint8))
            found = self.names.bytes[weights].reshape(-1, row_bytes, CELL)
        cells[data] = found
        scratchpad = {Memory.ACT: self.act, Memory.WGT: self.wgt, Memory.PRM: self.prm, Memory.LUT: self.lut}[target]
        scratchpad[rows] = cells.reshape(len(rows), *scratchpad.shape[1:])

    _load_packed = _load

    def _box(self, kind: str) -> list[tuple[int, int, int]]:
        return [(level["count"], level["row_stride"], level["mem_stride"]) for level in self.loops[kind]]

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
            rows = self.rows("WGT", op["row"] + np.arange(op["count"]))
            self.order.write("WGT", rows)
            tiles = np.frombuffer(b"".join(rounds), np.int8)
            self.wgt[rows] = self.names.bytes[tiles].reshape(-1, *self.wgt.shape[1:])

    def parameters(self, offsets: Array, sums: bool = False) -> tuple[Array, Array, Array]:
        """Constant biases, int64, elements of those that the program made, and patterns of scales, [n, block_in] each,
        in rows of PRM [n]. Biases that the program made are for sums only."""
        pairs = self.prm[self.reads("PRM", offsets)]
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
        """Elements of integers that the program made, of their bytes [..., 4, CELL]: of three without sign, and of the
        last. The upper two may be those of one integer of 16 bits."""
        unsigned = self.names.look_up(cells[..., :3, :], BYTES ^ np.int8(-128))[..., VALUE].astype(np.int64) + 128
        high, sign = cells[..., 2, :], cells[..., 3, :]
        upper = (unsigned[..., 2, :] + 256 * sign[..., VALUE].astype(np.int64)) % PRIMES
        same = (high[..., ROOT] == sign[..., ROOT]).all(axis=-1)
        for (least, most, one, two, whole), at in self.names.reach.cases(
            high[..., ROOT], high[..., TABLE], sign[..., TABLE], same
        ):
            both = self.names.table(one).view(np.uint8) + 256 * self.names.table(two).astype(np.int64)
            line = self.names.line(both, least, most)
            if whole and line is not None:
                upper[at] = (high[..., ROOT][at].astype(np.int64) * line[0] + line[1]) % PRIMES
        return np.asarray((unsigned[..., 0, :] + 256 * unsigned[..., 1, :] + 65536 * upper) % PRIMES, np.uint32)

    def _store(self, op: Op) -> None:
        c = self.config
        whole = Moved("arena", np.zeros(1, np.int64), np.zeros(FIELDS, np.uint32))
        window = whole if op["region"] == ARENA_REGION else self.windows.get(op["region"])
        if window is None or window.space != "arena":
            raise Finding(f"region {op['region']} must not be written")
        at, offsets = nest([(op["count"], 1, c.block_in), *self._box("STORE_DIM")], 2)
        rows = self.reads("ACT", op["row"] + at)
        places = (op["offset"] + offsets[:, None] + np.arange(c.block_in)) % (1 << c.offset_bits)
        places = np.add.outer(window.begins, places)  # wherever the region begins
        self._inside(op["region"], places, self.arena)
        bytes_, which = np.unique(places, return_inverse=True)
        self.order.write("arena", bytes_)
        if len(np.unique(places[0])) != places[0].size:
            raise NoRule("no rule for a box that writes a byte twice")
        if window is whole:
            self.arena[places[0]] = self.act[rows]
            return
        old, begin = self.arena[bytes_][:, VALUE], np.indices(places.shape)[0].ravel()
        new = np.broadcast_to(self.act[rows][..., VALUE], (*places.shape, FIELDS)).reshape(-1, FIELDS)
        self.arena[bytes_] = self.names.cells(self.names.put(old, which.ravel(), begin, window.number, new))
