"""The operations of VECTOR: what leaves ACC, and what is done with tiles in ACT."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.npu.emit.tile_program import Loop, PostFields
from tilewright.compiler.npu.emit.tiles import NO_TILE, ActTile
from tilewright.compiler.npu.layers.accumulators import accumulator_nests
from tilewright.isa.instructions import Rounding, Source
from tilewright.kernel.constants import Addend, Pair, Params, PostWork, Table, pair
from tilewright.kernel.errors import KernelError
from tilewright.kernel.machine import Machine, Target, operation, pieces, require_field, times
from tilewright.kernel.places import Tile
from tilewright.kernel.sums import Sums

_ROUNDINGS = {"even": Rounding.EVEN, "inside": Rounding.EVEN_ZERO_POINT_INSIDE, "away": Rounding.HALF_AWAY}

#: Fewest vectors of a pass that is a part of another: what it gives is stored, or read, earlier.
_VECTORS = 32


class VectorMachine(Machine):
    """VECTOR's part of `Chip`. Results are in ACT, or in a tensor in DRAM."""

    @operation
    def requantise(
        self,
        sums: Sums,
        params: Params,
        *,
        zero_point: int = 0,
        low: int = -128,
        high: int = 127,
        rounding: str = "even",
        add: Addend | None = None,
        table: Table | None = None,
        into: Target = None,
    ) -> Tile:
        """Turns sums into int8: clamp(round((sums + bias) * scale) + zero_point, low, high), then Add, then the table.

        Args:
            params: biases and scales, `params(...)`.
            rounding: "even" (ties to even), "inside" (the zero point before rounding) or "away" (ties away from 0).
            add: an integer Add of another tile behind it.
            table: table behind all.
            into: tile, or part of a tensor in DRAM, of the same size; None for a new tile.
        """
        post = self._post(zero_point, low, high, add, table)
        other = NO_TILE if add is None else self._broadcast(add.other.read("requantise"), sums.size)
        blocks, lines, columns = sums.size
        with self._result(into, sums.size, stored=True) as out:
            prm, step = params.load(self.context, sums.first_block, blocks), params.step
            for group in pieces(-(-blocks // sums.slices), lines * columns * sums.slices, _VECTORS):
                some = range(group.start * sums.slices, min(group.stop * sums.slices, blocks))
                for block, first, loops in accumulator_nests(
                    sums.strides, (columns, lines, len(some)), out.place, (1, 1), other, sums.slices
                ):
                    at, nest = some.start + block, [(*loop[:4], loop[4] * step) for loop in loops]
                    self._vector(
                        Source.ACC, sums.vector + group.start * sums.strides[2] + first,
                        out.place.base + at * out.place.plane, nest, post, b=other.base + at * other.plane,
                        prm=prm + at * step, rounding=rounding,
                    )  # fmt: skip
                self._store_blocks(out, into, some)
        return out

    @operation
    def add(
        self,
        a: Tile,
        b: Tile,
        *,
        ma: int = 1,
        mb: int = 1,
        c: int = 0,
        shift: int = 0,
        low: int = -128,
        high: int = 127,
        table: Table | None = None,
        into: Target = None,
    ) -> Tile:
        """Adds two tiles: clamp((a * ma + b * mb + c) >> shift, low, high), then the table.

        Args:
            b: as large as `a`, or 1 along an axis on which it is repeated.
        """
        a, b = a.read("add"), b.read("add")
        post = self._post(0, -128, 127, Addend(b, ma, mb, c, shift, low, high), table)
        with self._result(into, a.size) as out:
            self._elements(Source.ACT, a, b, out, post)
        return out

    @operation
    def multiply(
        self,
        a: Tile,
        b: Tile,
        params: Params,
        *,
        za: int = 0,
        zb: int = 0,
        zero_point: int = 0,
        low: int = -128,
        high: int = 127,
        rounding: str = "even",
        table: Table | None = None,
        into: Target = None,
    ) -> Tile:
        """Multiplies two tiles element by element, (a - za) * (b - zb), and requantises the products."""
        a, b = a.read("multiply"), b.read("multiply")
        post = self._post(zero_point, low, high, None, table, za, zb)
        with self._result(into, a.size) as out:
            self._elements(Source.MUL, a, b, out, post, params, rounding)
        return out

    @operation
    def apply(self, a: Tile, table: Table, *, into: Target = None) -> Tile:
        """Looks all values of a tile up in a table."""
        a = a.read("apply")
        with self._result(into, a.size) as out:
            self._elements(Source.ACT, a, None, out, PostWork(table=table))
        return out

    @operation
    def maximum(self, a: Tile, kernel: Pair, *, stride: Pair = 1, into: Target = None) -> Tile:
        """Takes the maximum under a window of `kernel` rows and columns that slides over a tile, in each channel."""
        return self._reduced(Source.MAX, a, kernel, stride, PostWork(), None, "even", into)

    @operation
    def total(
        self,
        a: Tile,
        params: Params,
        *,
        kernel: Pair | None = None,
        stride: Pair = 1,
        zero_point: int = 0,
        low: int = -128,
        high: int = 127,
        rounding: str = "even",
        table: Table | None = None,
        into: Target = None,
    ) -> Tile:
        """Adds each channel's values under a window that slides over a tile, by default all of it; requantises sums."""
        post = self._post(zero_point, low, high, None, table)
        window = (a.rows, a.columns) if kernel is None else kernel
        return self._reduced(Source.SUM, a, window, stride, post, params, rounding, into)

    def _reduced(
        self, source: Source, a: Tile, kernel: Pair, stride: Pair, post: PostWork, params: Params | None,
        rounding: str, into: Target,
    ) -> Tile:  # fmt: skip
        """Writes a VECTOR pass that reduces windows of a tile."""
        a = a.read(source.name.lower())
        (kh, kw), (sy, sx) = pair(kernel, "kernel", 1), pair(stride, "stride", 1)
        if kh > a.rows or kw > a.columns:
            raise KernelError(f"a window of {kh} x {kw} is larger than the {a.rows} x {a.columns} of {a!r}")
        size = a.blocks, (a.rows - kh) // sy + 1, (a.columns - kw) // sx + 1
        place = a.place
        with self._result(into, size) as out:
            self._require_apart(out, a)
            to, step = out.place, 0 if params is None else params.step
            self._vector(
                source, place.base, to.base,
                [(size[2], sx * place.step, 0, to.step, 0), (size[1], sy * place.line, 0, to.line, 0),
                 (size[0], place.plane, 0, to.plane, step)],
                post, reduce=[(kw, place.step, 0, 0, 0), (kh, place.line, 0, 0, 0)],
                prm=0 if params is None else params.load(self.context, 0, size[0]), rounding=rounding,
            )  # fmt: skip
        return out

    def _elements(
        self, source: Source, a: Tile, b: Tile | None, out: Tile, post: PostWork, params: Params | None = None,
        rounding: str = "even",
    ) -> None:  # fmt: skip
        """Writes a VECTOR pass over a tile, element by element."""
        other = NO_TILE if b is None else self._broadcast(b, out.size)
        for tile in (a, b):
            if tile is not None and tile.place != out.place:
                self._require_apart(out, tile)
        place, to, step = a.place, out.place, 0 if params is None else params.step
        self._vector(
            source, place.base, to.base,
            [(out.columns, place.step, other.step, to.step, 0), (out.rows, place.line, other.line, to.line, 0),
             (out.blocks, place.plane, other.plane, to.plane, step)],
            post, b=other.base, prm=0 if params is None else params.load(self.context, 0, out.blocks),
            rounding=rounding,
        )  # fmt: skip

    def _vector(
        self, source: Source, a: int, dst: int, loops: Sequence[Loop], post: PostWork, *, b: int = 0, prm: int = 0,
        reduce: Sequence[Loop] = (), rounding: str = "even",
    ) -> None:  # fmt: skip
        """Writes a VECTOR nest, with its table loaded."""
        if rounding not in _ROUNDINGS:
            raise KernelError(f"rounding must be one of {', '.join(_ROUNDINGS)}, not {rounding!r}")
        table = None if post.table is None else self.context.load_table(post.table.values)
        self.context.emitter.vector(
            source, a, dst, loops, b=b, prm=prm, reduce=reduce, add=post.add is not None, lut=table,
            rounding=_ROUNDINGS[rounding], post=post.fields, constants=post.add.constants if post.add else None,
        )  # fmt: skip

    def _post(
        self, zero_point: int, low: int, high: int, add: Addend | None, table: Table | None, za: int = 0, zb: int = 0
    ) -> PostWork:
        """Returns the work behind a source, whose fields are checked."""
        limits = (-128, 127) if add is None else (add.low, add.high)
        fields = PostFields(zero_point, low, high, *limits, za, zb)
        names = ("zero_point", "low", "high", "low of Add", "high of Add", "za", "zb")
        for name, value in zip(names, fields, strict=True):
            require_field("VECTOR_POST", "zp", value, name=name)
        if add is None:
            fields = fields._replace(add_lo=0, add_hi=0)
        else:
            for name, value in add.constants.items():
                require_field("VECTOR_ADD", name, value)
        if low > high or limits[0] > limits[1]:
            raise KernelError(f"low must not exceed high, not {low}..{high} and {limits[0]}..{limits[1]}")
        return PostWork(fields, add, table)

    def _broadcast(self, b: Tile, size: tuple[int, int, int]) -> ActTile:
        """Returns the place of a second operand, with a stride of 0 along axes on which it is repeated."""
        if any(own not in (1, n) for own, n in zip(b.size, size, strict=True)):
            raise KernelError(f"{b!r} does not go with {times(size)}: an axis must be equal or 1")
        plane, line, step = (
            0 if own == 1 else stride
            for own, stride in zip(b.size, (b.place.plane, b.place.line, b.place.step), strict=True)
        )
        return ActTile(b.place.base, plane, line, step)
