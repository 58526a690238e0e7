"""The slices of the instruction image that steps run."""

from __future__ import annotations

import pytest

from tilewright.compiler.errors import CompileError
from tilewright.compiler.stages.emission import Emission
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.program import CpuStep, NpuStep

CPU = CpuStep("symbol", "cpu0", [], 0, [])
IMAGE = to_bytes([op("LOAD_SYNC"), op("END"), op("END")])


def test_slices_cover_the_image() -> None:
    Emission(IMAGE, [NpuStep(0, 2), CPU, NpuStep(2, 1)], []).verify()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([NpuStep(0, 2)], "the steps have 2 instructions, the image 3"),
        ([NpuStep(0, 1), NpuStep(1, 2)], "instruction 0 is not the END"),
        ([NpuStep(0, 2), NpuStep(1, 2)], "starts at instruction 1, not 2"),
        ([NpuStep(0, 2), NpuStep(2, 2)], "instruction 3 is not the END"),
    ],
)
def test_wrong_slices(steps: list[NpuStep | CpuStep], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        Emission(IMAGE, steps, []).verify()
