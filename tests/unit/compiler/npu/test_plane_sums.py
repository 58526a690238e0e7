"""Means over planes that the array makes beside the layer before: the same bytes, and nothing is read for them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.program import Layer

#: Machines on which no plane of the tests stays in ACT, with wide and narrow blocks of results.
SHORT = {
    "base": PRESETS["base"].with_(name="short", act_rows=512, acc_rows=256),
    "narrow": PRESETS["wide"].with_(name="narrow", act_rows=512, acc_rows=256),
    "broad": PRESETS["base"].with_(name="broad", row_unit=0, block_in=8, act_rows=1024, acc_rows=128),
}


def squeezed(images: int, channels: int, size: tuple[int, int], kernel: int) -> Model:
    """Squeeze and excite: a layer, the mean of its planes, two layers, and the product with what the first one made."""
    m = Model(np.int8, seed=images + channels)
    x = m.input((images, 8, *size), 0.05, -3)
    y = m.requantized(m.op("Conv", x, m.weights((channels, 8, 1, 1))), 0.25, 5)
    pads = [kernel // 2] * 4
    y = m.op("Conv", y, m.weights((channels, 1, kernel, kernel)), group=channels, pads=pads)
    y = m.requantized(y, 0.15, 9)
    s = m.requantized(m.op("GlobalAveragePool", y), 0.01, 4)
    m.output(s)
    s = m.requantized(m.op("Conv", s, m.weights((channels, channels, 1, 1))), 0.02, 0)
    s = m.requantized(m.op("Sigmoid", s), 1 / 256, -128)
    m.output(m.requantized(m.op("Mul", y, s), 0.03, 0))
    return m


def run(m: Model, config: NpuConfig) -> list[Layer]:
    """The report's layers, once functional and cycle-level simulator gave onnxruntime's bytes. Nothing is measured, so
    that no plane comes to stay in ACT."""
    proto, feeds = m.build(), m.feeds()
    program, session = tw.compile_program(proto, config, effort=0, cache=False), onnx_models.session(proto)
    got, timed = (tw.Device(kind, config).run(program, feeds) for kind in ("functional", "cycle"))
    for output, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert len(np.unique(expected)) > 12
        np.testing.assert_array_equal(got[output.name], expected)
        np.testing.assert_array_equal(timed[output.name], expected)
    return program.layers


@pytest.mark.parametrize("config", SHORT)
@pytest.mark.parametrize(
    ("images", "channels", "size", "kernel"),
    [(1, 40, (13, 11), 3), (2, 24, (13, 14), 3), (1, 16, (29, 30), 5), (3, 60, (9, 10), 1), (1, 30, (2, 110), 1)],
)
def test_beside_the_layer_before(config: str, images: int, channels: int, size: tuple[int, int], kernel: int) -> None:
    layers = run(squeezed(images, channels, size, kernel), SHORT[config])
    mean = next(layer for layer in layers if layer.op == "QGlobalAveragePool")
    assert mean.tile == "with the layer before" and not mean.read_bytes and not mean.count


@pytest.mark.parametrize(("config", "beside"), [("base", False), ("tiny", True), ("small", True)])
def test_of_a_plane_on_the_chip_where_vector_takes_several_passes(config: str, beside: bool) -> None:
    layers = run(squeezed(1, 24, (6, 7), 3), PRESETS[config])
    mean = next(layer for layer in layers if layer.op == "QGlobalAveragePool")
    assert (mean.tile == "with the layer before") == beside


def test_sums_that_take_too_much_of_acc_are_made_afterwards() -> None:
    config = PRESETS["base"].with_(name="low", act_rows=512, acc_rows=16)
    layers = run(squeezed(3, 40, (9, 10), 1), config)
    mean = next(layer for layer in layers if layer.op == "QGlobalAveragePool")
    assert mean.tile != "with the layer before" and mean.read_bytes


def test_on_rtl() -> None:
    """The tile that waits to be added up is not overwritten by what runs at the same time."""
    m = squeezed(2, 21, (9, 8), 3)
    proto, feeds = m.build(), m.feeds()
    program = tw.compile_program(proto, "tiny", cache=False)
    runs = {}
    for kind in ("cycle", "rtl"):
        with tw.Device(kind, PRESETS["tiny"]) as device:
            results = device.run(program, feeds)
            assert device.counters is not None
            runs[kind] = {name: value.tobytes() for name, value in results.items()}, device.counters.cycles
    assert runs["rtl"] == runs["cycle"]
    assert runs["rtl"][0] == {name: value.tobytes() for name, value in onnx_models.run(proto, feeds).items()}
