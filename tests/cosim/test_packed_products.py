"""Two products in a multiplier on RTL: bytes, cycles and errors of random programs are those of the simulators."""

import pytest

from tests.cosim.random_programs import random_programs_agree
from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS

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
    random_programs_agree(MACHINES[machine], "DEPTHWISE")
