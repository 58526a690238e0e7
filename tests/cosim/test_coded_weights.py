"""LOAD_CODED on RTL: bytes, cycles and errors of random and damaged streams."""

import pytest

from verification.fuzz.codes import MACHINES, differences
from verification.programs.equality import Trio

pytestmark = [pytest.mark.cosim, pytest.mark.slow]


@pytest.mark.parametrize("machine", ["tiny", pytest.param("widest_bus", marks=pytest.mark.long)])
def test_random_streams(machine: str) -> None:
    trio, ends = Trio(MACHINES[machine]), set()
    for seed in range(1000, 1015):
        lines, end = differences(MACHINES[machine], seed, trio)
        assert not lines, (
            f"python -m verification.fuzz.codes --rtl --machines {machine} --seed {seed} --count 1: {lines}"
        )
        ends.add(end)
    assert {"complete", "CODE"} <= ends
