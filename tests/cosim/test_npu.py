"""The whole RTL against the functional simulator, by random programs."""

import json

import pytest

from tests.cosim.runner import simulate
from tilewright.hw.verilog import TOP, convert
from tilewright.isa.config import NpuConfig, preset

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

CONFIGS = {
    "tiny": preset("tiny"),
    "wide": preset("tiny").with_(name="wide", block_in=4, block_out=16, axi_data_bits=128, act_banks=8),
}


def run(config: NpuConfig, **settings: object) -> None:
    text = json.dumps(config.to_dict())
    simulate(config.name, convert(config), TOP, "tests.cosim.npu_bench", config=text, **settings)


@pytest.mark.parametrize("name", ["tiny", pytest.param("wide", marks=pytest.mark.long)])
def test_random_programs(name: str) -> None:
    run(CONFIGS[name], count=2)
