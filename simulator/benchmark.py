"""Speed of the functional simulator's fast path, single-threaded.

python -m tilewright.simulator.benchmark [preset or configuration file]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.instructions import Memory, Source
from tilewright.simulator.functional import FunctionalDevice

DATA_BYTES = 1 << 22


def _prologue(config: NpuConfig) -> list[Op]:
    """Instructions that fill ACT, WGT and PRM with random rows."""
    return [
        op("LOAD", region=1, target=Memory.ACT, count=config.act_rows),
        op("LOAD", region=1, target=Memory.WGT, count=config.wgt_tiles),
        op("LOAD", region=1, target=Memory.PRM, count=config.prm_rows),
    ]


def convolution(config: NpuConfig) -> list[Op]:
    """A 3 x 3 convolution, 4 blocks in, up to 4 blocks out, rows of up to 28 positions: one GEMM per output row."""
    width = min(28, int((config.act_rows / 4) ** 0.5) - 2)
    outs = min(4, config.wgt_tiles // 36)
    pitch, plane = width + 2, (width + 2) ** 2
    loops = [
        op("GEMM_LOOP", level=0, count=3, act_stride=1, wgt_stride=1),
        op("GEMM_LOOP", level=1, count=3, act_stride=pitch, wgt_stride=3),
        op("GEMM_LOOP", level=2, count=4, act_stride=plane, wgt_stride=9),
        op("GEMM_LOOP", level=3, count=width, act_stride=1, acc_stride=1),
        op("GEMM_LOOP", level=4, count=outs, wgt_stride=36, acc_stride=width),
    ]
    return loops + [op("GEMM", act=(i % width) * pitch, reduce=3) for i in range(200)]


def fully_connected(config: NpuConfig) -> list[Op]:
    """A fully connected layer at one position, every weight tile loaded and used once."""
    tiles = config.wgt_tiles // 2
    count = min(tiles, 64)
    outs = tiles // count
    loops = [
        op("GEMM_LOOP", level=0, count=count, act_stride=1, wgt_stride=1),
        op("GEMM_LOOP", level=1, count=outs, wgt_stride=count, acc_stride=1),
    ]
    half = [
        [op("LOAD", region=1, target=Memory.WGT, row=i * tiles, count=tiles), op("GEMM", wgt=i * tiles, reduce=1)]
        for i in range(2)
    ]
    return loops + (half[0] + half[1]) * 100


def depthwise(config: NpuConfig) -> list[Op]:
    """A 3 x 3 depthwise convolution at stride 1 over rows of 28 positions."""
    loops = [
        op("GEMM_LOOP", level=0, count=3, act_stride=30),
        op("GEMM_LOOP", level=1, count=30, act_stride=1, acc_stride=1),
    ]
    return loops + [op("DEPTHWISE", start0=2, step0=3, start1=2, step1=1, act=i % 30) for i in range(2000)]


def requantise(config: NpuConfig) -> list[Op]:
    """Requantisation from ACC to ACT with one PRM row."""
    loops = [op("VECTOR_LOOP", count=100, a_stride=1, dst_stride=1), op("VECTOR_POST", lo=-128, hi=127)]
    return loops + [op("VECTOR")] * 1000


def add(config: NpuConfig) -> list[Op]:
    """Additions of two ACT operands by the integer Add."""
    loops = [op("VECTOR_LOOP", count=100, a_stride=1, b_stride=1, dst_stride=1)]
    constants = [op("VECTOR_ADD", ma=1000, mb=2000, shift=12), op("VECTOR_POST", add_lo=-128, add_hi=127)]
    return loops + constants + [op("VECTOR", source=Source.ACT, b=200, dst=400, add=1)] * 1000


def copy(config: NpuConfig) -> list[Op]:
    """LOAD and STORE of runs of 28 rows."""
    dims = [
        op("LOAD_DIM", level=0, count=28, row_stride=30, mem_stride=28 * config.block_in),
        op("STORE_DIM", level=0, count=28, row_stride=30, mem_stride=28 * config.block_in),
        op("LOAD_PAD", left=1, right=1, fill=3),
    ]
    return dims + [op("LOAD", region=1, offset=64, count=28), op("STORE", region=2, row=1, count=28)] * 500


def measure(config: NpuConfig, make: Callable[[NpuConfig], list[Op]]) -> tuple[Counters, float]:
    """Counters of a run and the best time of five, in seconds."""
    ops = [*_prologue(config), *make(config), op("END")]
    device = FunctionalDevice(config)
    image = to_bytes(ops)
    program, data, out = device.allocate(len(image)), device.allocate(DATA_BYTES), device.allocate(DATA_BYTES)
    device.write(program, image)
    device.write(data, np.random.default_rng(0).integers(0, 256, DATA_BYTES, dtype=np.uint8))
    regions = [
        Region(program, len(image), read=True),
        Region(data, DATA_BYTES, read=True),
        Region(out, DATA_BYTES, write=True),
    ]
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        counters = device.run(regions, 0, 0, len(ops))
        best = min(best, time.perf_counter() - start)
    return counters, best


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    config = NpuConfig.load(arguments[0] if arguments else "base")
    print(f"{config.name}: functional simulator, fast path, one thread")
    for make in (convolution, fully_connected, depthwise, requantise, add, copy):
        counters, seconds = measure(config, make)
        if counters.macs:
            rate = f"{counters.macs / seconds / 1e9:8.1f} GMAC/s"
        elif counters.bytes_written:
            rate = f"{(counters.bytes_read + counters.bytes_written) / seconds / 1e9:8.1f} GB/s"
        else:
            rate = f"{1e5 * config.block_in / seconds / 1e9:8.2f} G elements/s"
        print(f"  {make.__name__:16}{rate}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
