"""Programs with an error."""

from __future__ import annotations

from tilewright.isa.device import Device, DeviceError, Region
from tilewright.isa.encoding import Op, op
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine, Memory, RowFunction, Source

SIZE = 1 << 14
DEPTHWISE = {"step0": 1, "step1": 1}

#: One error each, or two of which one comes first, on a machine with the memories of `tiny`.
CASES: list[list[Op]] = [
    [op("LOAD", region=1, row=4095, count=2)],
    [op("LOAD", region=1, target=Memory.WGT, row=1024, count=1)],
    [op("LOAD", region=1, target=Memory.PRM, row=63, count=2)],
    [op("LOAD", region=1, target=Memory.LUT, row=4, count=1)],
    [op("LOAD_PAD", right=3), op("LOAD", region=1, row=4093, count=1)],
    [op("LOAD_DIM", level=1, count=2, row_stride=-1), op("LOAD", region=1, count=1)],
    [op("LOAD_DIM", level=0, count=0), op("LOAD", region=1, count=1)],
    [op("GEMM", act=4096)],
    [op("GEMM", wgt=1024)],
    [op("GEMM", acc=512)],
    [op("GEMM_LOOP", level=5, count=9, acc_stride=100), op("GEMM", reduce=5)],
    [op("GEMM_LOOP", level=5, count=9, wgt_stride=-1), op("GEMM", wgt=1, reduce=6)],
    [op("DEPTHWISE", act=4096, **DEPTHWISE)],
    [op("DEPTHWISE", wgt=1024, acc=512, **DEPTHWISE)],
    [op("DEPTHWISE", acc=512, **DEPTHWISE)],
    [op("VECTOR", a=512)],
    [op("VECTOR", prm=64)],
    [op("VECTOR", dst=4096)],
    [op("VECTOR", source=Source.ACT, b=4098, add=1)],
    [op("VECTOR", source=Source.MUL, b=4098, prm=100)],
    # ROW, where there is a row unit; an illegal instruction where not.
    [op("ROW", prm=64)],
    [op("ROW", function=RowFunction.EXP, prm=64, dst=4096)],
    [op("ROW", function=RowFunction.EXP, dst=4096)],
    [op("ROW", function=RowFunction.MOMENTS, prm=64)],
    [op("ROW", function=RowFunction.NORM, number=64, prm=64)],
    [op("ROW", function=RowFunction.NORM, dst=4096)],
    [op("VECTOR_LOOP", level=0, count=5, a_stride=2), op("ROW", a=4090, prm=70, reduce=1)],
    [op("VECTOR_LOOP", level=0, count=5, a_stride=1), op("ROW", a=4090, prm=70, reduce=1)],
    [op("VECTOR_LOOP", level=0, count=5, prm_stride=1), op("ROW", function=RowFunction.EXP_SUM, prm=61, dst=5000)],
    # VECTOR_WIDE, where there are results of 16 bits; an illegal instruction where not.
    [op("VECTOR_WIDE", a=512, prm=64)],
    [op("VECTOR_WIDE", prm=64, dst=4096)],
    [op("VECTOR_LOOP", level=0, count=5, a_stride=1), op("VECTOR_WIDE", a=509, prm=64, dst=4096, reduce=1)],
    [op("VECTOR_LOOP", level=0, count=2, dst_stride=4096), op("VECTOR_WIDE", reduce=1)],
    [op("STORE", region=2, row=4095, count=3)],
    [op("STORE", region=2, row=4090, offset=5, count=30)],
    [op("STORE", region=2, row=4097, count=3)],
    [op("STORE_DIM", level=0, count=9, mem_stride=20, row_stride=3), op("STORE", region=2, row=4080, count=5)],
    [op("STORE_DIM", level=1, count=2, mem_stride=20, row_stride=-7), op("STORE", region=2, row=3, count=5)],
    [op("LOAD", region=1, offset=SIZE - 3, count=1)],
    [op("LOAD_DIM", level=0, count=2, mem_stride=-4), op("LOAD", region=1, count=1)],
    [op("STORE", region=1, count=1)],
    [op("STORE", region=2, offset=SIZE - 3, count=1)],
    [op("LOAD", region=6, offset=8, count=1)],
    # Which of two faults comes first: in step order, window of a run before its rows.
    [op("LOAD_DIM", level=0, count=5, mem_stride=4096, row_stride=1), op("LOAD", region=1, row=4094, count=1)],
    [op("LOAD_DIM", level=0, count=5, mem_stride=4096, row_stride=1), op("LOAD", region=1, row=4092, count=1)],
    [op("LOAD_DIM", level=0, count=5, mem_stride=4096, row_stride=1), op("LOAD", region=1, row=4091, count=1)],
    [op("STORE_DIM", level=0, count=5, mem_stride=4096, row_stride=1), op("STORE", region=2, row=4094, count=1)],
    [op("STORE_DIM", level=0, count=5, mem_stride=4096, row_stride=1), op("STORE", region=2, row=4092, count=1)],
    [op("STORE_DIM", level=0, count=5, mem_stride=4095, row_stride=1), op("STORE", region=2, row=4092, count=1)],
    # FETCH finds it first but reports it last.
    [op("GEMM_LOOP", level=0, count=500, act_stride=1), op("GEMM", act=3700), op("GEMM", reduce=9)],
    [op("VECTOR_SYNC"), op("GEMM", reduce=9)],
    [op("LOAD_SYNC", signal0=9)] * 256,
    # Region 3 is open but no memory answers there.
    [op("LOAD", region=3, offset=16, count=1)],
    [op("STORE", region=3, count=1)],
]


def prepare(device: Device) -> list[Region]:
    """Memory for a program, what it reads, and what it writes; region 3 has no memory."""
    device.free_all()
    base = device.allocate(3 * SIZE)
    return [
        Region(base, SIZE, read=True),
        Region(base + SIZE, SIZE, read=True),
        Region(base + 2 * SIZE, SIZE, read=True, write=True),
        Region(1 << 30, SIZE, read=True, write=True),
    ]


def outcome(device: Device, words: bytes, **options: int) -> tuple[ErrorCode, Engine, int | None, int] | None:
    """Returns the error with which a program stops: code, engine, instruction, address; None = it ends."""
    regions = prepare(device)
    device.write(regions[0].base, words)
    try:
        device.run(regions, 0, 0, len(words) // 16, **options)
    except DeviceError as error:
        return error.code, error.engine, error.pc, error.address
    return None
