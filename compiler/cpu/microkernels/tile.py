"""Register tiles of the matmul: C[rows, 2 vectors] = sum over k of A[rows, k] * B[k, 2 vectors].

Each element of A is broadcast, each row of B is two vectors, and the sums stay in registers. A tile is one LLVM
function `(a, b, c, k, table)`; equal tiles of different layers are the same function.
"""

from __future__ import annotations

from compiler.cpu.module import Module


def split_rows(m: int, limit: int) -> list[tuple[int, int]]:
    """Rows of the tiles: (count, rows) pairs, as equal as possible and none above `limit`."""
    tiles = -(-m // limit)
    base, more = divmod(m, tiles)
    return [(count, rows) for count, rows in ((more, base + 1), (tiles - more, base)) if count]


def tile_f32(module: Module, rows: int, vectors: int, a_row: int, a_k: int, ldb: int | None, ldc: int) -> str:
    """The float32 tile.

    Args:
        rows: rows of the tile.
        vectors: columns in vectors.
        a_row, a_k: strides of A along rows and k, elements.
        ldb, ldc: row strides of B and C, elements; without `ldb` the offsets of B's rows come from a table.
    """
    lanes = module.target.lanes
    vec = f"<{lanes} x float>"
    if module.target.has_fma:
        intrinsic = module.declare(
            f"@llvm.fma.v{lanes}f32", f"declare {vec} @llvm.fma.v{lanes}f32({vec}, {vec}, {vec})"
        )

    def product(n: str, a: str, b: str, s: str) -> list[str]:
        if module.target.has_fma:
            return [f"{n} = call {vec} {intrinsic}({vec} {a}, {vec} {b}, {vec} {s})"]
        return [f"{n}p = fmul contract {vec} {a}, {b}", f"{n} = fadd contract {vec} {n}p, {s}"]

    def operand(r: int, p: str) -> list[str]:
        return [
            f"%s{r} = load float, ptr {p}, align 4",
            f"%i{r} = insertelement {vec} poison, float %s{r}, i64 0",
            f"%x{r} = shufflevector {vec} %i{r}, {vec} poison, <{lanes} x i32> zeroinitializer",
        ]

    return _tile(
        module, "tile", rows, vectors, a_row * 4, a_k * 4, ldb and ldb * 4, ldc * 4, vec, vec, operand, product
    )


def tile_i8(
    module: Module, rows: int, vectors: int, a_row: int, a_k: int, ldb: int | None, ldc: int, a_signed: bool
) -> str:
    """The int8 tile: four neighbours along k are summed into each int32.

    Args:
        a_row: stride of A along rows, bytes; a_k: along groups of four k, bytes.
        ldb: stride of B along groups of four k, in groups (int32); ldc: of C, elements.
        a_signed: A is signed and B unsigned, or the other way round.
    """
    lanes = module.target.lanes
    vec, raw = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
    bits = module.target.vector_bits
    if module.target.has_vnni:
        name = f"@llvm.x86.avx512.vpdpbusd.{bits}"
        module.declare(name, f"declare {vec} {name}({vec}, {raw}, {raw})")

    def product(n: str, a: str, b: str, s: str) -> list[str]:
        if module.target.has_vnni:
            u, v = (b, a) if a_signed else (a, b)
            return [f"{n} = call {vec} {name}({vec} {s}, {raw} {u}, {raw} {v})"]
        out, total = [], s
        for j in range(4):
            # Byte j of every int32 lane, extended by shifts.
            for x, signed, t in ((a, a_signed, "a"), (b, not a_signed, "b")):
                w = f"{n}{t}{j}"
                out.append(f"{w}w = bitcast {raw} {x} to {vec}")
                out.append(f"{w}l = shl {vec} {w}w, splat (i32 {24 - 8 * j})")
                out.append(f"{w} = {'ashr' if signed else 'lshr'} {vec} {w}l, splat (i32 24)")
            out.append(f"{n}p{j} = mul {vec} {n}a{j}, {n}b{j}")
            last = n if j == 3 else f"{n}t{j}"
            out.append(f"{last} = add {vec} {total}, {n}p{j}")
            total = last
        return out

    def operand(r: int, p: str) -> list[str]:
        return [
            f"%s{r} = load i32, ptr {p}, align 1",
            f"%i{r} = insertelement {vec} poison, i32 %s{r}, i64 0",
            f"%w{r} = shufflevector {vec} %i{r}, {vec} poison, <{lanes} x i32> zeroinitializer",
            f"%x{r} = bitcast {vec} %w{r} to {raw}",
        ]

    return _tile(module, "tilei", rows, vectors, a_row, a_k, ldb and ldb * 4, ldc * 4, vec, raw, operand, product)


def _tile(module, stem, rows, vectors, a_row, a_k, ldb, ldc, vec, raw, operand, product) -> str:  # type: ignore[no-untyped-def]
    """The loop over k around either kind of product; all strides in bytes."""
    width = module.target.vector_bits // 8
    phis, body, tail = [], [], []
    for v in range(vectors):
        body += [f"%bp{v} = getelementptr i8, ptr %bk, i64 {v * width}", f"%b{v} = load {raw}, ptr %bp{v}, align 4"]
    for r in range(rows):
        body.append(f"%ap{r} = getelementptr i8, ptr %ak, i64 {r * a_row}")
        body += operand(r, f"%ap{r}")
        for v in range(vectors):
            n = f"{r}.{v}"
            phis.append(f"%c{n} = phi {vec} [ zeroinitializer, %entry ], [ %n{n}, %loop ]")
            body += product(f"%n{n}", f"%x{r}", f"%b{v}", f"%c{n}")
            tail.append(f"%o{n} = getelementptr i8, ptr %c, i64 {r * ldc + v * width}")
            tail.append(f"store {vec} %n{n}, ptr %o{n}, align 4")
    lines = [
        "define hidden void @NAME(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %k, ptr noalias %table) #0 {",
        "entry:",
        "br label %loop",
        "loop:",
        "%kk = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *phis,
        f"%ao = mul i64 %kk, {a_k}",
        "%ak = getelementptr i8, ptr %a, i64 %ao",
        *(
            [f"%bo = mul i64 %kk, {ldb}"]
            if ldb is not None
            else ["%tp = getelementptr i64, ptr %table, i64 %kk", "%bo = load i64, ptr %tp, align 8"]
        ),
        "%bk = getelementptr i8, ptr %b, i64 %bo",
        *body,
        "%next = add nuw nsw i64 %kk, 1",
        "%more = icmp slt i64 %next, %k",
        "br i1 %more, label %loop, label %exit",
        "exit:",
        *tail,
        "ret void",
        "}\n",
    ]
    return module.define_text("\n".join(lines), stem)
