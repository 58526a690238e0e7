"""Configuration after a reset and from one instruction to the next; and SYNC."""

import numpy as np

from tests.unit.simulator.by_hand import bench, one_prm
from tilewright.isa.encoding import op


def test_configuration_is_kept_between_instructions_not_between_runs(path: str) -> None:
    b = bench(path)
    one_prm(b)
    b.pads.acc[:4] = 50
    post = op("VECTOR_POST", lo=-128, hi=127)
    b.run([post, op("VECTOR", dst=1), op("VECTOR", dst=2)])
    assert (b.pads.act[1:3] == 50).all()
    b.run([op("VECTOR", dst=1)])  # clamps are 0 again
    assert not b.pads.act[1].any()


def test_reset_values(path: str) -> None:
    b = bench(path)
    b.fill()
    before = b.pads.act.copy()
    b.run(
        [op("LOAD", region=1, row=3, count=1), op("STORE", region=2, row=3, count=1), op("GEMM"), op("VECTOR", dst=5)]
    )
    assert (b.pads.act[3].view(np.uint8) == b.data[:4]).all() and (b.out[:4] == b.data[:4]).all()
    assert not b.pads.act[5].any()
    changed = (b.pads.act != before).any(axis=1)
    assert set(np.flatnonzero(changed)) <= {3, 5}


def test_sync_orders_and_has_no_effect(path: str) -> None:
    b = bench(path)
    b.fill()
    before = {k: v.copy() for k, v in b.pads.arrays().items()}
    b.run(
        [
            op("STORE_SYNC", wait0=1),
            op("VECTOR_SYNC", wait0=2, wait1=3, signal0=1),
            op("GEMM_SYNC", signal0=2),
            op("LOAD_SYNC", signal0=3),
        ]
    )
    assert all((before[k] == v).all() for k, v in b.pads.arrays().items())
