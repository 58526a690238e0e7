"""Listings of tile programs: one operation a line, with its fields by name."""

from __future__ import annotations

from tilewright.compiler.npu.emit import listing
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.tile_program import Operation, Place, PostFields
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import op
from tilewright.isa.instructions import Memory, RowFunction, Source, WideByte
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION
from verification.programs.accesses import Access, Run


def test_every_operation() -> None:
    emitter = Emitter(PRESETS["base"], 0)
    emitter.load(Place(ARENA_REGION, 64), Memory.ACT, 3, 5, y=(2, 7, 80), pad=(1, 0, 1, 0), fill=-9)
    emitter.load(Place(CONSTANT_REGION, 128), Memory.WGT, 2, 6, packed=True)
    emitter.load_coded(Place(CONSTANT_REGION, 256), CodeMode.WEIGHTS, 4, 6, 11)
    emitter.fill(8, [(1, 100), (3, 20)], 2, 77)
    emitter.store(Place(ARENA_REGION, 512), 9, 4, z=(3, 8, 64))
    emitter.gemm(1, 2, 3, [(3, 1, 1, 0)], [(1, 9, 9, 9), (4, 8, 0, 1)], accumulate=True)
    emitter.depthwise(1, 2, 3, [(6, 1, 0, 1), (5, 7, 0, 5)], start=(2, 1), step=(1, 2), lanes_slice=0, delay=4,
                      accumulate=False)  # fmt: skip
    emitter.vector(Source.ACC, 1, 9, [(8, 1, 0, 1, 0)], prm=2, lut=3, post=PostFields(zp=-1, hi=127))
    emitter.vector(Source.ACT, 1, 9, [(8, 1, 2, 1, 0)], b=5, add=True, constants={"ma": 3, "mb": 0, "c": 0, "shift": 1})
    emitter.vector_wide(WideByte.HIGH, 1, 9, [(8, 1, 0, 1, 0)], prm=2, reduce=[(2, 6, 0, 0, 0)], low=-5, high=6)
    emitter.row(RowFunction.EXP, 1, [(8, 1, 0, 1, 1)], prm=2, table=0, dst=9)
    run = Run(op("GEMM_SYNC"), [Access("act", 0, 1)], [], 5)
    tape = [*emitter.tape.tolist(), *run.numbers()]
    assert list(listing.lines(tape, [(0, "first"), (5, "second")])) == [
        "# first",
        "load        act=3 5 rows from arena+0x40 2 x (+7, +80 B) pad 1 0 1 0 with -9",
        "load_packed wgt=2 6 rows from constants+0x80",
        "load_coded  weights wgt=4 6 tiles from constants+0x100, 11 beats",
        "fill        act=8 2 rows 3 x (+20) with 77",
        "store       act=9 4 rows 3 x (+8, +64 B) to arena+0x200",
        "# second",
        "matmul      act=1 wgt=2 acc=3 accumulate sum 3 x (act+1, wgt+1) over 4 x (act+8, acc+1)",
        "depthwise   act=1 wgt=2 acc=3 start=2,1 step=1,2 slice=0 delay=4 over 6 x (act+1, acc+1) 5 x (act+7, acc+5)",
        "requantise  a=1 b=0 dst=9 prm=2 table=3 even post(zero_point=-1, high=127) over 8 x (a+1, dst+1)",
        "add         a=1 b=5 dst=9 prm=0 even constants(ma=3, shift=1) over 8 x (a+1, b+2, dst+1)",
        "vector_wide high a=1 dst=9 prm=2 within -5..6 sum 2 x (a+6) over 8 x (a+1, dst+1)",
        "row         exp a=1 dst=9 prm=2 table=0 tail=0 number=0 exponent=0 over 8 x (a+1, dst+1, prm+1)",
        f"run         engine=2 word={op('GEMM_SYNC').encode():032x} work=5",
    ]
    named = {operation.name.lower() for operation in Operation} - {"gemm", "vector"} | {"matmul", "requantise", "add"}
    assert {line.split()[0] for line in listing.lines(tape)} == named
