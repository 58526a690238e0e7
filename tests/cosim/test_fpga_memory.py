"""Memories of small boards against an independent AXI4 master."""

import pytest

from tests.cosim.runner import simulate
from tilewright.fpga.memory import OnChipMemory
from tilewright.hw.verilog import component_text
from tilewright.isa.config import preset

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

SIZE = 8192


@pytest.mark.parametrize("name", [pytest.param("tiny", marks=pytest.mark.long), "small"])
def test_on_chip_memory(name: str) -> None:
    text = component_text(OnChipMemory(preset(name), SIZE), "memory")
    simulate(f"memory_{name}", text, "memory", "tests.cosim.memory_bench", size=SIZE, seed=1)


@pytest.mark.parametrize("size", [0, -8, 12])
def test_size_is_checked(size: int) -> None:
    with pytest.raises(ValueError, match="size must be a positive multiple of 8 bytes"):
        OnChipMemory(preset("small"), size)
