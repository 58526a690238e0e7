"""Weights of 4 bits as bytes, and machines that have them."""

import numpy as np
import pytest

from tilewright.isa.config import ConfigError, preset
from tilewright.isa.packing import fits, packed, unpacked


def test_the_first_weight_is_in_the_low_bits() -> None:
    assert packed(np.array([1, -2, -8, 7], np.int8)) == bytes([0xE1, 0x78])


def test_all_pairs_come_back() -> None:
    values = np.arange(-8, 8, dtype=np.int8)
    weights = np.stack(np.meshgrid(values, values), axis=-1).reshape(-1)
    assert (unpacked(np.frombuffer(packed(weights), np.uint8)).view(np.int8) == weights).all()


def test_other_values_do_not_fit() -> None:
    assert fits(np.array([-8, 7], np.int8)) and not fits(np.array([8, 0], np.int8))
    with pytest.raises(ValueError, match=r"weights of 4 bits must be -8\.\.7, not -9\.\.0"):
        packed(np.array([-9, 0], np.int8))


def test_a_beat_lies_within_a_tile() -> None:
    config = preset("tiny").with_(act_banks=8, axi_data_bits=128, burst_beats=16)
    with pytest.raises(ConfigError, match="packed_weights must be 0 with axi_data_bits = 128"):
        config.with_(packed_weights=1)
    assert config.with_(axi_data_bits=64, packed_weights=1).packed_tile_bytes == 8
