"""Random machines: any field of the configuration may have any value it can have."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import op
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.equality import case, cycle_differences, minimised
from verification.programs.random_configs import random_config, simplest


def test_machines_are_made_again_and_differ() -> None:
    machines = [random_config(seed) for seed in range(200)]
    assert machines[:5] == [random_config(seed) for seed in range(5)]
    assert len({machine.fingerprint for machine in machines}) == 200
    for name, values in {key: {asdict(m)[key] for m in machines} for key in asdict(machines[0])}.items():
        assert len(values) > 1, f"{name} is always {values}"
    odd = [m for m in machines if m.act_rows & (m.act_rows - 1) or m.wgt_tiles & (m.wgt_tiles - 1)]
    assert len(odd) > 20 and any(m.row_unit for m in machines) and any(m.axi_address_bits > 32 for m in machines)
    assert any(m.offset_bits < 32 for m in machines)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_simulators_agree(seed: int) -> None:
    config = random_config(seed)
    for program in (seed, seed + 1):
        assert cycle_differences(config, *case(program, config)) == []


def test_a_difference_is_seen() -> None:
    class Wrong(FunctionalDevice):
        def read(self, address: int, size: int) -> np.ndarray:
            found = super().read(address, size).copy()
            found[100] ^= 1
            return found

    config = random_config(0)
    assert cycle_differences(config, *case(0, config), Wrong) == ["1 bytes differ, the first at 0x64"]


def test_what_differs_becomes_small() -> None:
    config = random_config(3)
    found = simplest(config, lambda machine: machine.semaphores == config.semaphores)
    small = NpuConfig(block_in=4, block_out=4, axi_data_bits=32, name=config.name, semaphores=config.semaphores)
    assert found == small
    ops = [op("GEMM_SYNC"), op("LOAD_SYNC"), op("VECTOR_SYNC"), op("LOAD_SYNC", signal0=1), op("END")]
    said: list[str] = []
    left = minimised(ops, lambda some: op("VECTOR_SYNC") in some and op("GEMM_SYNC") in some, said.append)
    assert left == [ops[0], ops[2], ops[4]] and said[-1] == "2 instructions left"
