"""Machines and what a test begins with."""

import numpy as np

from tests.common.machine_harness import Bench
from tilewright.isa.config import NpuConfig, preset

TINY = preset("tiny")  # 4 x 4


WIDE = TINY.with_(name="8x4", block_in=8)  # block_out < block_in


TALL = TINY.with_(name="4x8", block_out=8)  # block_in < block_out


def bench(path: str, config: NpuConfig = TINY) -> Bench:
    return Bench(config, path)


def one_prm(b: Bench, row: int = 0, bias: int = 0, scale: float = 1.0) -> None:
    b.pads.prm[row, :, 0] = np.int32(bias).view(np.uint32)
    b.pads.prm[row, :, 1] = np.float32(scale).view(np.uint32)
