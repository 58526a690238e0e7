"""Linear Resize as integers, and the reasons where it stays in floats."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model


@pytest.mark.medium
@pytest.mark.parametrize(
    ("scale", "after", "how", "there"),
    [
        (0.125, 0.125, "half_pixel", True),
        (0.125, 0.125, "asymmetric", True),
        (0.1, 0.1, "half_pixel", False),  # sums of floats beside ties
        (0.125, 0.25, "half_pixel", False),
        (0.125, 0.125, "align_corners", False),  # thirds
    ],
)
def test_linear_resize(scale: float, after: float, how: str, there: bool) -> None:
    m = Model()
    x = m.input((1, 3, 4, 4), scale=scale, zero=5)
    y = m.op("Resize", x, "", m.const([1, 1, 2, 4], np.float32), mode="linear", coordinate_transformation_mode=how)
    m.output(m.requantized(y, scale=after, zero=5))
    program = tw.compile_program(m.build(), "tiny", cache=False)
    assert any(layer.where == "npu" and layer.op == "QInterpolate" for layer in program.layers) == there
    assert any("a linear Resize is the same" in note for note in program.notes) != there
