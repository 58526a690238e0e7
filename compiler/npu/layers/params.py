"""Biases and scales of layers in PRM: one for all lanes, or one for each channel."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.npu.emit.context import Context


def uniform_params(context: Context, bias: int, scale: np.float32) -> int:
    """Loads a PRM row with one bias and one scale for all lanes, unless it is there; returns the row."""
    lanes = context.config.block_in
    return context.load_params(
        ("uniform", bias, float(scale)), 1, lambda: (np.full(lanes, bias, np.int32), np.full(lanes, scale, np.float32))
    )


def are_uniform(bias: np.ndarray, scale: np.ndarray, lanes: int) -> bool:
    """Returns True if one row has the biases and scales of all channel blocks, which lanes without a channel share.

    Args:
        bias, scale: [channels] of all channels.
        lanes: channels of a block.
    """
    full = len(scale) % lanes == 0 or not bias[0]  # a bias of 0 leaves the sums of 0 in other lanes as they are
    return full and bool((bias == bias[0]).all() and (scale == scale[0]).all())


def channel_params(
    bias: np.ndarray, scale: np.ndarray, block: int, blocks: int, lanes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the biases and scales of channel blocks in PRM's order, both [blocks * lanes].

    Lanes without a channel are 0.

    Args:
        bias, scale: [channels] of all channels.
        block, blocks: first channel block, and number of them.
        lanes: channels of a block.
    """
    return _padded(bias, block * lanes, blocks * lanes), _padded(scale, block * lanes, blocks * lanes)


def _padded(values: np.ndarray, first: int, count: int) -> np.ndarray:
    """Returns `count` values from `first` on, 0 behind the last one."""
    found = np.zeros(count, values.dtype)
    part = values[first : first + count]
    found[: len(part)] = part
    return found
