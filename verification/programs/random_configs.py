"""Random machines: every field of `NpuConfig` over its range, with combinations that cannot be left out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields

from tilewright.isa.config import MAX_WINDOW_DELAY, MIN_ADDRESS_BITS, ConfigError, NpuConfig
from verification.programs.generator import ARENA_BYTES

#: The largest blocks that are drawn: beyond, an RTL simulation takes minutes to build.
LARGEST_BLOCK = 16


def random_config(seed: int) -> NpuConfig:
    """Returns a valid machine, made again from its seed. Memories are small most of the time, so that addresses come
    near their ends, and have any number of rows."""
    rng = random.Random(f"config {seed}")
    while True:
        try:
            return NpuConfig(name=f"random-{seed}", **_draw(rng))
        except ConfigError:  # fields that contradict each other: all are drawn again
            continue


def _power(rng: random.Random, low: int, high: int) -> int:
    return 1 << rng.randint(low.bit_length() - 1, high.bit_length() - 1)


def _rows(rng: random.Random, low: int, high: int) -> int:
    return rng.choice([low, _power(rng, low, high), rng.randint(low, high), rng.randint(low, min(high, 8 * low))])


def _draw(rng: random.Random) -> dict[str, int]:
    block_in, block_out = _power(rng, 4, LARGEST_BLOCK), _power(rng, 4, LARGEST_BLOCK)
    banks = _power(rng, 2, 16)
    # A zone of rows in every memory has room in what a generated program may load and store.
    most = ARENA_BYTES // block_in
    return {
        "block_in": block_in,
        "block_out": block_out,
        "act_banks": banks,
        "act_rows": max(64, _rows(rng, 64, 4 * most) // banks * banks),
        "wgt_tiles": _rows(rng, 4, 2048),
        "acc_rows": _rows(rng, 16, 2048) // 4 * 4,
        "prm_rows": _rows(rng, 2, 256),
        "lut_tables": rng.choice([0, 1, 4, 8, rng.randint(0, 16)]),
        "depthwise": rng.choice([0, 1, 1]),
        "window_delay": rng.choice([0, rng.randint(0, MAX_WINDOW_DELAY)]),
        "vector_queue": rng.choice([0, 1, 1]),
        "vector_passes": rng.choice([1, 1, 2, 4]),
        "row_unit": rng.randint(0, 1),
        "gemm_loops": rng.randint(5, 8),
        "vector_loops": rng.randint(4, 8),
        "semaphores": rng.choice([12, 63, rng.randint(12, 63)]),
        "queue_depth": rng.choice([2, 3, rng.randint(2, 40), 256]),
        "axi_data_bits": _power(rng, 32, 256),
        "axi_address_bits": rng.choice([32, 64, rng.randint(MIN_ADDRESS_BITS, 64)]),
        "burst_beats": _power(rng, 2, 256),
        "read_outstanding": rng.choice([1, rng.randint(1, 64)]),
        "write_outstanding": rng.choice([1, rng.randint(1, 64)]),
        "weight_codes": rng.choice([0, 0, 0, _power(rng, 8, 32)]),
        "wide_results": rng.randint(0, 1),
        "packed_weights": rng.randint(0, 1),
        "window_pairs": rng.randint(0, 1),
        "packed_products": int(block_out >= max(8, block_in) and rng.random() < 0.5),
    }


def simplest(config: NpuConfig, differs: Callable[[NpuConfig], bool]) -> NpuConfig:
    """Returns a machine on which something still differs, with as many fields as can be as a small machine has them."""
    plain = NpuConfig(block_in=4, block_out=4, axi_data_bits=32)
    for field in fields(NpuConfig):
        value = getattr(plain, field.name)
        if field.name == "name" or value == getattr(config, field.name):
            continue
        try:
            other = config.with_(**{field.name: value})
        except ConfigError:  # another field does not allow it
            continue
        if differs(other):
            config = other
    return config
