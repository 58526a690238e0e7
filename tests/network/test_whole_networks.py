"""Whole networks: nothing between the first and the last NPU layer leaves the NPU, and the bytes are onnxruntime's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from isa.config import preset
from isa.program import CpuStep, NpuStep, Program
from tests.common.movenet import movenet
from tilewright import zoo

#: Ops at the two ends: the picture into blocks and the results out of them, and what a network begins or ends with.
_BORDER = {"QuantizeLinear", "DequantizeLinear", "Relayout"}
#: Network, its parameters, and what else the CPU does at its ends.
NETWORKS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "deit": ({"size": 64, "layers": 2}, set()),
    "bert": ({"tokens": 32, "vocabulary": 200}, {"Gather"}),  # of embeddings
    "squeeze_excite": ({"size": 64}, set()),  # MobileNetV3
    "efficientnet": ({"size": 64, "classes": 100}, set()),
    "segmentation": ({"size": 64}, set()),
    "detector": ({"size": 96, "width": 16}, {"Reshape", "Transpose", "QConcat"}),  # of the three heads' results
    "segformer": ({"size": 64}, set()),
}
#: Of these, ops between NPU layers: the float sums of linear Resize decide ties, which the NPU's integers do not know.
_BETWEEN = {"segformer": {"Resize": 3, "DequantizeLinear": 3, "QuantizeLinear": 3, "Relayout": 6}}


def ops_of_cpu(program: Program) -> tuple[Counter[str], Counter[str], int]:
    """The CPU's ops between the first and the last step of the NPU, those at the ends, and steps of the NPU."""
    steps = program.steps
    npu = [at for at, step in enumerate(steps) if isinstance(step, NpuStep)]
    between: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for at, step in enumerate(steps):
        if isinstance(step, CpuStep):
            (between if npu[0] < at < npu[-1] else ends).update(op.split()[0] for op in step.ops)
    return between, ends, len(npu)


def compared(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """Every quantised tensor is onnxruntime's, but for those that say why they may be off by one."""
    report = tw.check(model, inputs, config="base", cache=False)
    assert report.ok and report.rows, [row for row in report.rows if row.status not in ("equal", "border")]


@pytest.mark.network
@pytest.mark.parametrize("name", NETWORKS)
def test_zoo(name: str) -> None:
    parameters, at_the_ends = NETWORKS[name]
    model = zoo.build_quantized(name, calibration=4, **parameters)
    between, ends, turns = ops_of_cpu(tw.compile(model, preset("base")))
    assert between == _BETWEEN.get(name, {}) and turns == (2 if between else 1)
    assert set(ends) <= _BORDER | at_the_ends
    rng = np.random.default_rng(1)
    value = model.graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    whole = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
    compared(model, {value.name: rng.integers(0, 200, shape) if whole else rng.normal(size=shape).astype(np.float32)})


@pytest.mark.network
def test_vit(models_dir: Path) -> None:
    model = onnx.load(models_dir / "vit_tiny_qdq.onnx")
    between, ends, turns = ops_of_cpu(tw.compile(model, preset("base")))
    assert not between and turns == 1 and set(ends) <= _BORDER
    cycle = tw.Device("cycle", preset("base"))
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    cycle.run(tw.compile(model, preset("base")), {model.graph.input[0].name: x})
    assert cycle.counters.cycles < 1_830_000


@pytest.mark.network
def test_movenet() -> None:
    """As TFLite: every tensor is LiteRT's. ArgMax stays on the CPU, where the network ends."""
    model = movenet(64)
    between, ends, turns = ops_of_cpu(tw.compile(model, preset("base")))
    assert not between and turns == 1, between
    assert set(ends) <= {"QLut", "Relayout", "Reshape", "ArgMax", "Cast", "Transpose"}, ends
    picture = np.random.default_rng(1).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8)
    report = tw.check(model, {"t0": picture}, config="base", keep="all", cache=False)
    assert report.ok and {row.status for row in report.rows} == {"equal"}, report.summary()
