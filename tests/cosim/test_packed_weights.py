"""LOAD_PACKED on RTL: bytes, cycles and errors of random programs are those of the simulators."""

import pytest

from tests.cosim.random_programs import random_programs_agree
from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS

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
    random_programs_agree(MACHINES[machine], "LOAD_PACKED")
