"""LOAD_PACKED on RTL: bytes, cycles and errors of random programs are those of the simulators."""

import pytest

from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS, Trio, case

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

MACHINES = {
    "tiny": PRESETS["tiny"].with_(name="packed_tiny", packed_weights=1),
    "narrow_in": VARIANTS["narrow_in"].with_(name="packed_narrow_in", packed_weights=1),
    "coded": PRESETS["tiny"].with_(name="packed_coded", packed_weights=1, weight_codes=8),
}


@pytest.mark.parametrize(
    "machine", ["tiny", *(pytest.param(n, marks=pytest.mark.long) for n in ("narrow_in", "coded"))]
)
def test_random_programs(machine: str) -> None:
    trio, loads = Trio(MACHINES[machine]), 0
    for seed in range(25):
        program, timing = case(seed, MACHINES[machine])
        loads += sum(o.name == "LOAD_PACKED" for o in program.ops)
        assert not (lines := trio.differences(program, timing)), (seed, timing, lines)
    assert loads
