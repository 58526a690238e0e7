"""Random race-free programs on the RTL, with random memory timing, against the functional simulator."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hw.sim.device import RtlDevice
from isa.config import preset
from isa.timing import MemoryTiming
from simulator.functional import FunctionalDevice
from tests.common.program_generator import generate

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

TINY = preset("tiny")
CONFIGS = {
    "tiny": TINY,
    "base": preset("base"),
    "narrow": TINY.with_(name="narrow", block_in=8, block_out=4, axi_data_bits=64),
    "wide": TINY.with_(name="wide", block_in=4, block_out=16, axi_data_bits=128, act_banks=8),
    "widest-bus": TINY.with_(name="widest-bus", block_in=8, block_out=8, axi_data_bits=256),
    "cramped": TINY.with_(
        name="cramped", act_rows=1000, act_banks=2, acc_rows=48, wgt_tiles=50, prm_rows=9, lut_tables=1, queue_depth=2,
        burst_beats=2, read_outstanding=1, write_outstanding=1, block_in=16, block_out=4, axi_address_bits=40,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_same_memory(name: str) -> None:
    config = CONFIGS[name]
    reference, rtl = FunctionalDevice(config, "fast"), RtlDevice(config)
    for seed in range(40):
        program = generate(seed, config)
        rng = random.Random(seed)
        rtl.timing = MemoryTiming(
            read_latency=rng.choice((1, 2, 7, 64)),
            write_latency=rng.choice((1, 3, 16)),
            read_interval=rng.choice((1, 1, 2, 5)),
            write_interval=rng.choice((1, 1, 2, 5)),
        )
        reference.free_all()
        rtl.free_all()
        wrong = np.flatnonzero(program.run(reference) != program.run(rtl))
        assert not wrong.size, f"seed {seed}: {wrong.size} bytes differ, first {wrong[:8]}, {rtl.timing}"
