"""PRelu with a slope for each channel, as in networks for faces: quantised with its result, and one turn of the NPU."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tests.unit.tilewright.quantize.networks import samples
from tilewright.isa.program import NpuStep
from tilewright.quantize import Accuracy, quantize
from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.prepare import prepare
from tilewright.quantize.verifying import verify_here


def _network() -> onnx.ModelProto:
    """Convolutions, slopes and pools, pixels flattened as TensorFlow does, and two products."""
    random, make = np.random.default_rng(0), helper.make_node
    held = {
        name: (random.normal(size=shape) / np.sqrt(np.prod(shape) / 20)).astype(np.float32)
        for name, shape in {"w0": (20, 3, 3, 3), "w1": (24, 20, 3, 3), "w2": (96, 32), "w3": (32, 10)}.items()
    }
    for name, shape in {"s0": (20, 1, 1), "s1": (24, 1, 1), "s2": (32,)}.items():
        held[name] = random.uniform(-0.2, 0.9, shape).astype(np.float32)
    nodes = [
        make("Conv", ["x", "w0"], ["c0"], "conv0"),
        make("PRelu", ["c0", "s0"], ["p0"], "prelu0"),
        make("MaxPool", ["p0"], ["m0"], "pool0", kernel_shape=[2, 2], strides=[2, 2]),
        make("Conv", ["m0", "w1"], ["c1"], "conv1"),
        make("PRelu", ["c1", "s1"], ["p1"], "prelu1"),
        make("MaxPool", ["p1"], ["m1"], "pool1", kernel_shape=[2, 2]),
        make("Transpose", ["m1"], ["t"], "pixels", perm=[0, 2, 3, 1]),
        make("Flatten", ["t"], ["f"], "flatten"),
        make("MatMul", ["f", "w2"], ["d0"], "dense0"),
        make("PRelu", ["d0", "s2"], ["p2"], "prelu2"),
        make("MatMul", ["p2", "w3"], ["y"], "dense1"),
    ]
    return model_of(nodes, {"x": [1, 3, 12, 12]}, ["y"], held)


@pytest.mark.medium
def test_one_turn() -> None:
    model, pictures = _network(), samples(6)
    slopes = [layer for layer in Network(prepare(model)).layers if layer.op == "PRelu"]
    assert [layer.kind for layer in slopes] == [Kind.BY_CHANNEL] * 3
    made = quantize(model, pictures, accuracy=Accuracy(target=0), check=False).model  # type: ignore[arg-type]
    verified = verify_here(made, pictures[0])
    assert verified.report.ok and verified.npu_macs == verified.macs
    assert sum(isinstance(step, NpuStep) for step in tw.compile(made).steps) == 1


def test_time_of_the_plain_network() -> None:
    """The plain quantiser has no PRelu in 8 bits, so its network has a turn for each: it is no network in 8 bits."""
    made = quantize(_network(), samples(12), check=False)  # type: ignore[arg-type]
    assert made.decision is not None
    plain, *others = made.decision.candidates
    assert plain.name == "plain" and plain.others >= 2
    assert all(x.others == 0 and x.cycles < plain.cycles for x in others)
