"""Rest: the part of `weight - zero point` that does not fit int8, as sets of weights that are nearly all zeros.

The zero point of uint8 weights is not always 128, and then a few weights of a layer exceed int8. Their excess becomes
further sets that are added to the first. Only tiles that are not all zeros are loaded and multiplied.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tilewright.isa.config import NpuConfig

#: Share of nonzero tiles above which whole sets are multiplied: a single tile costs an instruction.
DENSE_SHARE = 0.5


class Rest(Struct, frozen=True):
    """Sets of weights of a convolution in which few tiles are not all zeros.

    Attributes:
        at: positions of the weights that are not 0, int32 [n, 5]: set, output, input channel, kernel row, kernel
            column.
        values: these weights, int8 [n].
        tiles: the tiles with such weights, sorted: (set, block of block_out outputs, kernel row, kernel column, block
            of block_in input channels).
        share: share of these tiles in all tiles of the sets.
    """

    at: np.ndarray
    values: np.ndarray
    tiles: tuple[tuple[int, ...], ...]
    share: float

    @staticmethod
    def of(sets: np.ndarray, group: int, config: NpuConfig) -> Rest:
        """Returns sets of weights as a rest.

        Args:
            sets: int8 [sets, O, C/group, kh, kw], at least one.
            group: groups of channels.
            config: the machine.
        """
        at = np.argwhere(sets).astype(np.int32)
        values = sets[tuple(at.T)]
        outs, ins = sets.shape[1] // group, sets.shape[2]
        at[:, 2] += at[:, 1] // outs * ins
        tiles = _nonzero_tiles(at, config)
        blocks_in = -(-ins // config.block_in) if group == 1 else 1
        whole = sets.shape[0] * -(-sets.shape[1] // config.block_out) * blocks_in * sets.shape[3] * sets.shape[4]
        return Rest(at, values, tuple(map(tuple, tiles.tolist())), len(tiles) / max(whole, 1))

    @property
    def sets(self) -> int:
        """The number of sets that are not all zeros."""
        return len({tile[0] for tile in self.tiles})

    @property
    def sparse(self) -> bool:
        """True if it is better multiplied tile by tile than as whole sets."""
        return self.share <= DENSE_SHARE

    def window(self, number: int, channels: range, kernel: tuple[int, int]) -> np.ndarray:
        """Returns some channels of one set of a depthwise convolution, int8 [channels, kernel rows, kernel columns].

        Args:
            number: number of the set.
            channels: the channels.
            kernel: kernel rows and columns.
        """
        dense = np.zeros((len(channels), *kernel), np.int8)
        chosen = (self.at[:, 0] == number) & (self.at[:, 1] >= channels.start) & (self.at[:, 1] < channels.stop)
        at = self.at[chosen]
        dense[at[:, 1] - channels.start, at[:, 3], at[:, 4]] = self.values[chosen]
        return dense

    def part(self, rows: range, blocks: range) -> list[tuple[int, ...]]:
        """Returns the tiles of some blocks of outputs (`rows`) and inputs."""
        return [tile for tile in self.tiles if tile[1] in rows and tile[4] in blocks]

    def pack(self, tiles: list[tuple[int, ...]], config: NpuConfig) -> np.ndarray:
        """Returns the weights of some tiles, int8 [tiles, block_out, block_in]."""
        number = {tile: i for i, tile in enumerate(tiles)}
        packed = np.zeros((len(tiles), config.block_out, config.block_in), np.int8)
        for where, at, value in zip(map(tuple, _tiles_of_weights(self.at, config).tolist()), self.at, self.values):
            if where in number:
                packed[number[where], at[1] % config.block_out, at[2] % config.block_in] = value
        return packed


def _tiles_of_weights(at: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Returns the tile of each weight, int32 [n, 5], in the form of `Rest.tiles`."""
    return np.stack([at[:, 0], at[:, 1] // config.block_out, at[:, 3], at[:, 4], at[:, 2] // config.block_in], axis=1)


def _nonzero_tiles(at: np.ndarray, config: NpuConfig) -> np.ndarray:
    """Returns the tiles that contain weights, sorted, each once."""
    return np.unique(_tiles_of_weights(at, config), axis=0)
