"""Two products in a multiplier on RTL: bytes, cycles and errors of random programs are those of the simulators."""

import pytest

from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS, Trio, case

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

MACHINES = {
    "square": PRESETS["small"].with_(name="pairs_square", packed_products=1),
    "windows": PRESETS["small"].with_(name="pairs_windows", packed_products=1, window_pairs=1, window_delay=3),
    "narrow_in": VARIANTS["narrow_in"].with_(name="pairs_narrow_in", packed_products=1),
    "tall": PRESETS["small"].with_(name="pairs_tall", block_out=16, packed_products=1),
}


@pytest.mark.parametrize(
    "machine", ["square", *(pytest.param(n, marks=pytest.mark.long) for n in ("windows", "narrow_in", "tall"))]
)
def test_random_programs(machine: str) -> None:
    trio, windows = Trio(MACHINES[machine]), 0
    for seed in range(25):
        program, timing = case(seed, MACHINES[machine])
        windows += sum(o.name == "DEPTHWISE" for o in program.ops)
        assert not (lines := trio.differences(program, timing)), (seed, timing, lines)
    assert windows
