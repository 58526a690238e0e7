"""Means over planes that the array adds up beside the layer before: equal bytes, and no tile is read again for them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.common.squeeze_excite import squeezed
from tests.reference.quantized_models import Model
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.program import Layer

#: Machines on which no plane of the tests stays in ACT, with wide and narrow blocks of results.
SHORT = {
    "base": PRESETS["base"].with_(name="short", act_rows=512, acc_rows=256),
    "narrow": PRESETS["wide"].with_(name="narrow", act_rows=512, acc_rows=256),
    "broad": PRESETS["base"].with_(name="broad", row_unit=0, block_in=8, act_rows=1024, acc_rows=128),
}


def run(m: Model, config: NpuConfig) -> list[Layer]:
    """Returns the report's layers, after both simulators gave onnxruntime's bytes.

    Effort 0 measures nothing, so that no plane stays in ACT.
    """
    proto, feeds = m.build(), m.feeds()
    program, session = tw.compile_program(proto, config, effort=0, cache=False), onnx_models.session(proto)
    got, timed = (tw.Device(kind, config).run(program, feeds) for kind in ("functional", "cycle"))
    for output, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert len(np.unique(expected)) > 12
        np.testing.assert_array_equal(got[output.name], expected)
        np.testing.assert_array_equal(timed[output.name], expected)
    return program.layers


@pytest.mark.medium
@pytest.mark.parametrize("config", SHORT)
@pytest.mark.parametrize(
    ("images", "channels", "size", "kernel"),
    [(1, 40, (13, 11), 3), (2, 24, (13, 14), 3), (1, 16, (29, 30), 5), (3, 60, (9, 10), 1), (1, 30, (2, 110), 1)],
)
def test_beside_the_layer_before(config: str, images: int, channels: int, size: tuple[int, int], kernel: int) -> None:
    layers = run(squeezed(images, channels, size, kernel), SHORT[config])
    mean = next(layer for layer in layers if layer.op == "QGlobalAveragePool")
    assert mean.tile == "with the layer before" and not mean.read_bytes and not mean.count


@pytest.mark.medium
@pytest.mark.parametrize(("config", "beside"), [("base", False), ("tiny", True), ("small", True)])
def test_of_a_plane_on_the_chip_where_vector_takes_several_passes(config: str, beside: bool) -> None:
    layers = run(squeezed(1, 24, (6, 7), 3), PRESETS[config])
    mean = next(layer for layer in layers if layer.op == "QGlobalAveragePool")
    assert (mean.tile == "with the layer before") == beside


@pytest.mark.medium
def test_sums_that_take_too_much_of_acc_are_made_afterwards() -> None:
    config = PRESETS["base"].with_(name="low", act_rows=512, acc_rows=16)
    layers = run(squeezed(3, 40, (9, 10), 1), config)
    mean = next(layer for layer in layers if layer.op == "QGlobalAveragePool")
    assert mean.tile != "with the layer before" and mean.read_bytes
