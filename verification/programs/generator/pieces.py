"""Random pieces of instructions: loops, strides, rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.encoding import op
from verification.programs.generator.program import ARENA_BYTES, DATA_BYTES, PROGRAM_BYTES
from verification.programs.order import Order


class Pieces(Order):
    """Random operands, and the configuring instructions that set them.

    Args:
        seed: of all that is random.
        config: the NPU.
        max_steps: of one instruction.
    """

    def __init__(self, seed: int, config: NpuConfig, max_steps: int) -> None:
        super().__init__(random.Random(f"{seed}/{config.fingerprint}"), config.semaphores)
        self.config, self.max_steps = config, max_steps
        c = config
        self.sizes = {
            "ACT": c.act_rows, "WGT": c.wgt_tiles, "PRM": c.prm_rows, "LUT": c.lut_tables,
            "ACC": c.acc_rows * c.block_out, "MEM": PROGRAM_BYTES + DATA_BYTES + ARENA_BYTES,
        }  # fmt: skip
        # Most rows lie in a small zone, so that instructions meet; it may touch the end of the memory.
        self.zones = {name: self._zone(rows) for name, rows in self.sizes.items() if name not in ("ACC", "MEM")}
        self.acc_zone = self._zone(c.acc_rows, 24)
        arena = PROGRAM_BYTES + DATA_BYTES
        self.dump_bytes = ARENA_BYTES // 2
        half = arena + 4096
        self.windows = (
            Region(0, PROGRAM_BYTES, read=True),
            Region(PROGRAM_BYTES, DATA_BYTES, read=True),
            Region(arena, ARENA_BYTES - self.dump_bytes - 17, read=True, write=True),
            Region(half, 5001, read=True, write=True),  # overlaps region 2
            Region(half, 3000, write=True),
            Region(arena + ARENA_BYTES - self.dump_bytes, self.dump_bytes, write=True),
        )
        self.loops: dict[str, list[dict[str, int]]] = {
            "GEMM_LOOP": [{} for _ in range(c.gemm_loops)],
            "VECTOR_LOOP": [{} for _ in range(c.vector_loops)],
            "LOAD_DIM": [{}, {}],
            "STORE_DIM": [{}, {}],
        }
        self.pad: dict[str, int] = {}
        self.post: dict[str, int] = {}

    def _zone(self, rows: int, most: int = 160) -> tuple[int, int]:
        size = min(rows, most)
        first = self.rng.choice([0, rows - size, self.rng.randint(0, rows - size)])
        return first, first + size

    def _mask(self, resource: str, rows: Any, width: int = 1) -> np.ndarray:
        mask = np.zeros(self.sizes[resource], bool)
        rows = np.asarray(rows, np.int64).reshape(-1)
        mask[(rows[:, None] * width + np.arange(width)).reshape(-1)] = True
        return mask

    def _counts(self, levels: int, most: int) -> list[int]:
        """Loop counts whose product is at most `most`; many levels stay at 1."""
        counts = [1] * levels
        for level in self.rng.sample(range(levels), levels):
            room = most // int(np.prod(counts))
            if room > 1 and self.rng.random() < 0.7:
                counts[level] = self.rng.randint(1, min(room, self.rng.choice([2, 3, 5, 9, 40])))
        return counts

    def _strides(self, counts: Sequence[int], room: int) -> list[int]:
        """Strides, negative and zero ones too, with which a nest spans at most `room` rows."""
        strides = []
        for count in counts:
            most = (room - 1) // max(1, count - 1)
            stride = self.rng.choice([0, 1, 1, -1, count, self.rng.randint(-most, most), self.rng.randint(-3, 3)])
            if abs(stride) * (count - 1) >= room:
                stride = 0
            room -= abs(stride) * (count - 1)
            strides.append(stride)
        return strides

    def _base(self, reach: np.ndarray, zone: tuple[int, int]) -> int:
        return self.rng.randint(zone[0] - int(reach.min()), zone[1] - 1 - int(reach.max()))

    def _set_loops(self, kind: str, levels: list[dict[str, int]]) -> None:
        for level in self.rng.sample(range(len(levels)), len(levels)):
            if self.loops[kind][level] != levels[level] or self.rng.random() < 0.05:
                self.loops[kind][level] = levels[level]
                self.stream.append(op(kind, level=level, **levels[level]))

    @staticmethod
    def _bytes(starts: np.ndarray, nbytes: int) -> np.ndarray:
        return (starts[:, None] + np.arange(nbytes)).reshape(-1)


def reach_of(counts: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """int64: offsets of a nest from its base, level 0 fastest."""
    total = np.zeros(1, np.int64)
    for count, stride in zip(counts, strides):
        total = (np.arange(count)[:, None] * stride + total).reshape(-1)
    return total
