"""Rest: the part of `weight - zero point` that does not fit in int8, as sets of weights that are nearly all zeros.

The zero point of uint8 weights is not always 128, and then a few weights of a layer leave int8. They become further
sets that are added to the first. Only tiles that are not all zeros are loaded and multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.isa.config import NpuConfig

#: Share of tiles from which it is better to multiply whole sets: a tile of its own costs an instruction.
DENSE = 0.5


@dataclass(frozen=True)
class Rest:
    """Sets of weights of a convolution of which few tiles are not all zeros.

    Attributes:
        at: int32 [n, 5] of the weights that are not 0: set, output, input channel, kernel row, kernel column.
        values: int8 [n].
        tiles: those that hold them: (set, block of block_out outputs, kernel row, kernel column, block of block_in
            input channels), sorted.
        share: of all tiles of these sets.
    """

    at: np.ndarray
    values: np.ndarray
    tiles: tuple[tuple[int, ...], ...]
    share: float

    @staticmethod
    def of(sets: np.ndarray, group: int, config: NpuConfig) -> Rest:
        """The sets as a rest.

        Args:
            sets: int8 [sets, O, C/group, kh, kw], at least one.
        """
        at = np.argwhere(sets).astype(np.int32)
        values = sets[tuple(at.T)]
        outs, ins = sets.shape[1] // group, sets.shape[2]
        at[:, 2] += at[:, 1] // outs * ins
        tiles = _tiles(at, config)
        blocks_in = -(-ins // config.block_in) if group == 1 else 1
        whole = sets.shape[0] * -(-sets.shape[1] // config.block_out) * blocks_in * sets.shape[3] * sets.shape[4]
        return Rest(at, values, tuple(map(tuple, tiles.tolist())), len(tiles) / max(whole, 1))

    @property
    def sets(self) -> int:
        """Sets that are not all zeros."""
        return len({tile[0] for tile in self.tiles})

    @property
    def sparse(self) -> bool:
        """True if it is better multiplied tile by tile than as whole sets."""
        return self.share <= DENSE

    def window(self, number: int, channels: range, kernel: tuple[int, int]) -> np.ndarray:
        """Some channels of one set of a depthwise convolution: int8 [channels, kernel rows, kernel columns]."""
        dense = np.zeros((len(channels), *kernel), np.int8)
        chosen = (self.at[:, 0] == number) & (self.at[:, 1] >= channels.start) & (self.at[:, 1] < channels.stop)
        at = self.at[chosen]
        dense[at[:, 1] - channels.start, at[:, 3], at[:, 4]] = self.values[chosen]
        return dense

    def part(self, rows: range, blocks: range) -> list[tuple[int, ...]]:
        """The tiles of some blocks of outputs and inputs."""
        return [tile for tile in self.tiles if tile[1] in rows and tile[4] in blocks]

    def pack(self, tiles: list[tuple[int, ...]], config: NpuConfig) -> np.ndarray:
        """int8 [tiles, block_out, block_in]."""
        number = {tile: i for i, tile in enumerate(tiles)}
        packed = np.zeros((len(tiles), config.block_out, config.block_in), np.int8)
        for where, at, value in zip(map(tuple, _of_elements(self.at, config).tolist()), self.at, self.values):
            if where in number:
                packed[number[where], at[1] % config.block_out, at[2] % config.block_in] = value
        return packed


def _of_elements(at: np.ndarray, config: NpuConfig) -> np.ndarray:
    """The tile of each weight."""
    return np.stack([at[:, 0], at[:, 1] // config.block_out, at[:, 3], at[:, 4], at[:, 2] // config.block_in], axis=1)


def _tiles(at: np.ndarray, config: NpuConfig) -> np.ndarray:
    return np.unique(_of_elements(at, config), axis=0)
