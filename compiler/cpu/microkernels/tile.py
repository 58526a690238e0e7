"""Register tiles of the matmul: C[rows, 2 vectors] = sum over k of A[rows, k] * B[k, 2 vectors].

Each element of A is broadcast, each row of B is two vectors, and the sums stay in registers. A tile is one LLVM
function `(a, b, c, k, table)`; equal tiles of different layers are the same function.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.types import vector
from tilewright.compiler.cpu.ir.writer import Operand, Writer, pointer_to

HEAD = "hidden void @NAME(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %k, ptr noalias %table) #0"
A, B, C, TABLE = (pointer_to(f"%{name}") for name in ("a", "b", "c", "table"))
K = Operand("%k", "i64")


class Tile(Struct, frozen=True):
    """Size of a tile, and the strides of its operands in bytes.

    Attributes:
        rows: rows of A and C.
        vectors: columns of B and C, in vectors.
        a_row, a_k: strides of A along rows and k.
        b_row: stride of B along k; None if the offsets of B's rows come from a table.
        c_row: stride of C along rows.

    For int8, k counts groups of four neighbours, which are summed into each int32.
    """

    rows: int
    vectors: int
    a_row: int
    a_k: int
    b_row: int | None
    c_row: int


class Product(Protocol):
    """The multiplication within a tile.

    Attributes:
        stem: start of the function's name.
        sums: vector type of the sums.
        row: vector type of B.
    """

    stem: str
    sums: str
    row: str

    def spread(self, w: Writer, number: int, p: Operand) -> Operand:
        """Broadcasts the element of A at `p` to all lanes; `number` is its row."""

    def add(self, w: Writer, name: str, a: Operand, b: Operand, sums: Operand) -> Operand:
        """The value `sums + a * b`, called `name`."""


class FloatProduct:
    """float32 products, by fused multiply-add where there is one."""

    stem = "tile"

    def __init__(self, module: Module) -> None:
        self.lanes = module.target.lanes
        self.fused = module.target.has_fma
        self.sums = self.row = vector("float", self.lanes)

    def spread(self, w: Writer, number: int, p: Operand) -> Operand:
        element = w.load("float", p, 4, f"s{number}")
        return w.splat(element, self.lanes, (f"i{number}", f"x{number}"))

    def add(self, w: Writer, name: str, a: Operand, b: Operand, sums: Operand) -> Operand:
        if self.fused:
            fma = w.declared(f"@llvm.fma.v{self.lanes}f32", *[self.sums] * 4)
            return w.call(fma, self.sums, [a, b, sums], name)
        product = w.binary("fmul", a, b, "contract", f"{name}p")
        return w.binary("fadd", product, sums, "contract", name)


class ByteProduct:
    """int8 products, one operand signed and the other unsigned: four neighbours along k are summed into each int32.

    Args:
        a_signed: True if A is the signed operand.
    """

    stem = "tilei"

    def __init__(self, module: Module, a_signed: bool) -> None:
        target = module.target
        self.lanes, self.bits, self.dot = target.lanes, target.vector_bits, target.has_vnni
        self.a_signed = a_signed
        self.sums, self.row = vector("i32", self.lanes), vector("i8", 4 * self.lanes)

    def spread(self, w: Writer, number: int, p: Operand) -> Operand:
        group = w.load("i32", p, 1, f"s{number}")
        whole = w.splat(group, self.lanes, (f"i{number}", f"w{number}"))
        return w.convert("bitcast", whole, self.row, f"x{number}")

    def add(self, w: Writer, name: str, a: Operand, b: Operand, sums: Operand) -> Operand:
        if self.dot:
            dot = w.declared(f"@llvm.x86.avx512.vpdpbusd.{self.bits}", self.sums, self.sums, self.row, self.row)
            unsigned, signed = (b, a) if self.a_signed else (a, b)
            return w.call(dot, self.sums, [sums, unsigned, signed], name)
        for j in range(4):
            x = self._byte(w, f"{name}a{j}", a, j, self.a_signed)
            y = self._byte(w, f"{name}b{j}", b, j, not self.a_signed)
            product = w.mul(x, y, "", f"{name}p{j}")
            sums = w.add(sums, product, "", name if j == 3 else f"{name}t{j}")
        return sums

    def _byte(self, w: Writer, name: str, v: Operand, j: int, signed: bool) -> Operand:
        """Byte j of every int32 lane, extended by shifts."""
        by = lambda n: Operand(f"splat (i32 {n})", self.sums)
        lanes = w.convert("bitcast", v, self.sums, f"{name}w")
        high = w.binary("shl", lanes, by(24 - 8 * j), called=f"{name}l")
        return w.binary("ashr" if signed else "lshr", high, by(24), called=name)


def split_rows(m: int, limit: int) -> list[tuple[int, int]]:
    """Rows of the tiles: (count, rows) pairs, as equal as possible and none above `limit`."""
    tiles = -(-m // limit)
    base, more = divmod(m, tiles)
    return [(count, rows) for count, rows in ((more, base + 1), (tiles - more, base)) if count]


def define_tile(module: Module, tile: Tile, product: Product) -> str:
    """Defines the function of a tile: a loop over k around the products. Returns its name."""
    w = Writer(module, indent="")
    width = module.target.vector_bits // 8
    cells = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
    w.jump("loop")
    w.label("loop")
    k = w.phi("i64", [(0, "entry"), ("%next", "loop")], "kk")
    starts = {
        (r, v): w.phi(product.sums, [("zeroinitializer", "entry"), (f"%n{r}.{v}", "loop")], f"c{r}.{v}")
        for r, v in cells
    }
    a = w.at("i8", A, w.mul(k, tile.a_k, "", "ao"), "ak")
    if tile.b_row is not None:
        offset = w.mul(k, tile.b_row, "", "bo")
    else:
        offset = w.load("i64", w.at("i64", TABLE, k, "tp"), 8, "bo")
    b = w.at("i8", B, offset, "bk")
    columns = [w.load(product.row, w.at("i8", b, v * width, f"bp{v}"), 4, f"b{v}") for v in range(tile.vectors)]
    sums = {}
    for r in range(tile.rows):
        x = product.spread(w, r, w.at("i8", a, r * tile.a_row, f"ap{r}"))
        for v, column in enumerate(columns):
            sums[r, v] = product.add(w, f"n{r}.{v}", x, column, starts[r, v])
    following = w.add(k, 1, "nuw nsw", "next")
    w.branch(w.icmp("slt", following, K, "more"), "loop", "exit")
    w.label("exit")
    for r, v in cells:
        w.store(sums[r, v], w.at("i8", C, r * tile.c_row + v * width, f"o{r}.{v}"), 4)
    return module.define(w.text(HEAD), product.stem)
