"""Rests of weights: weights beyond int8 are in tiles of their own, which add up to the original weights."""

import numpy as np
import pytest

from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.rest import Rest
from tilewright.compiler.npu.ops.weights import split_zero_point
from tilewright.isa.config import preset

CONFIG = preset("small").with_(name="uneven", block_out=4, acc_rows=2048)


def few(shape: tuple[int, ...], at: list[tuple[int, ...]]) -> np.ndarray:
    """Returns int8 zeros with 7 at some positions."""
    sets = np.zeros(shape, np.int8)
    for place in at:
        sets[place] = 7
    return sets


def test_tiles():
    rest = Rest.of(few((1, 10, 20, 3, 3), [(0, 0, 0, 0, 0), (0, 3, 7, 0, 0), (0, 9, 19, 2, 1)]), 1, CONFIG)
    assert rest.tiles == ((0, 0, 0, 0, 0), (0, 2, 2, 1, 2))
    assert rest.sparse and rest.share == 2 / (3 * 3 * 9)
    assert rest.part(range(0, 2), range(0, 3)) == [(0, 0, 0, 0, 0)]
    packed = rest.pack(list(rest.tiles), CONFIG)
    assert packed.shape == (2, 4, 8) and packed.sum() == 21
    assert packed[0, 0, 0] == packed[0, 3, 7] == packed[1, 1, 3] == 7


def test_groups_read_their_own_channels():
    rest = Rest.of(few((1, 16, 8, 1, 1), [(0, 8, 0, 0, 0)]), 2, CONFIG)
    assert rest.tiles == ((0, 2, 0, 0, 1),)


@pytest.mark.parametrize("zero", [-3, 3])
def test_few_outside(zero: int):
    w = np.clip(np.random.default_rng(0).normal(0, 20, (40, 40, 1, 1)), -100, 100).astype(np.int8)
    w[5, 17] = -127 if zero > 0 else 126
    sets = split_zero_point(w, np.array(zero))
    phase = Phase.of(sets, 1, CONFIG, (0, 0))
    assert len(sets) == 2 and phase.weights.shape[0] == 1 and phase.rest_tiles == 1
    whole = phase.weights[0].astype(int)
    whole[5, 17] += int(phase.rest.values[0])
    assert np.array_equal(whole, w.astype(int) - zero)


def test_many_outside_are_a_set():
    w = np.random.default_rng(0).integers(-128, 128, (40, 40, 1, 1)).astype(np.int8)
    phase = Phase.of(split_zero_point(w, np.array(100)), 1, CONFIG, (0, 0))
    assert phase.weights.shape[0] == 2 and phase.rest is None


def test_window():
    rest = Rest.of(few((1, 20, 1, 3, 3), [(0, 17, 0, 1, 2)]), 20, CONFIG)
    window = rest.window(0, range(16, 24), (3, 3))
    assert window.shape == (8, 3, 3) and window[1, 1, 2] == 7 and window.sum() == 7
