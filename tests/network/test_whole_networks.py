"""Whole networks: nothing between the first and the last NPU layer leaves the NPU, and the bytes are onnxruntime's.

python -m tests.network.test_whole_networks     at full size: turns, what is left on the CPU and why, cycles
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common.movenet import movenet
from tilewright import zoo
from tilewright.isa.config import preset
from tilewright.isa.program import Program
from tilewright.measure.ends import CpuOp, ends_of, kinds_with_reasons
from tilewright.runtime.cost import program_cycles

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
#: They take long, and others have their kinds of layers.
LARGE = ("segformer", "detector", "efficientnet")
#: Of these, ops between NPU layers: the float sums of linear Resize decide ties, which the NPU's integers do not know.
_BETWEEN = {"segformer": {"Resize": 3, "DequantizeLinear": 3, "QuantizeLinear": 3, "Relayout": 6}}


def kinds(ops: list[CpuOp]) -> Counter[str]:
    """The ops by what they are, each of which says why it is on the CPU."""
    assert all(op.reason for op in ops)
    return Counter(op.op for op in ops)


def compared(model: onnx.ModelProto, program: Program, inputs: dict[str, np.ndarray]) -> None:
    """Every output is onnxruntime's, but for those that say why they may be off by one."""
    report = tw.check(model, inputs, program=program, cache=False)
    assert report.ok and report.rows, [row for row in report.rows if row.status not in ("equal", "border")]


@pytest.mark.network
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in LARGE)) for name in NETWORKS],
)
def test_zoo(name: str) -> None:
    parameters, at_the_ends = NETWORKS[name]
    model = zoo.build_quantized(name, calibration=4, **parameters)
    program = tw.compile_program(model, preset("base"))
    (ends,) = ends_of(program)
    assert kinds(ends.between) == _BETWEEN.get(name, {}) and ends.turns == (2 if ends.between else 1)
    assert set(kinds(ends.front + ends.behind)) <= _BORDER | at_the_ends
    rng = np.random.default_rng(1)
    value = model.graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    whole = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
    compared(
        model,
        program,
        {value.name: rng.integers(0, 200, shape) if whole else rng.normal(size=shape).astype(np.float32)},
    )


@pytest.mark.network
@pytest.mark.long
def test_vit(models_dir: Path) -> None:
    model = onnx.load(models_dir / "vit_tiny_qdq.onnx")
    (ends,) = ends_of(tw.compile(model, preset("base")))
    assert not ends.between and ends.turns == 1 and set(kinds(ends.front + ends.behind)) <= _BORDER
    cycle = tw.Device("cycle", preset("base"))
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    cycle.run(tw.compile(model, preset("base")), {model.graph.input[0].name: x})
    assert cycle.counters.cycles < 1_830_000


@pytest.mark.network
def test_movenet() -> None:
    """Every tensor is LiteRT's, as TFLite. ArgMax stays on the CPU, where the network ends."""
    model = movenet(64)
    program = tw.compile(model, preset("base"))
    (ends,) = ends_of(program)
    assert not ends.between and ends.turns == 1, ends.between
    found = kinds(ends.front + ends.behind)
    assert set(found) <= {"QLut", "Relayout", "Reshape", "ArgMax", "Cast", "Transpose"}, found
    said = {op.reason for op in ends.behind if op.op == "ArgMax"}
    assert said == {"its results are places of 64 bits, those of the NPU are bytes"}
    picture = np.random.default_rng(1).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8)
    report = tw.check(model, {"t0": picture}, config="base", keep="all", cache=False)
    assert report.ok and {row.status for row in report.rows} == {"equal"}, report.summary()


def main() -> None:
    """The judged networks at full size; `vit_tiny_qdq` of the folder $TILEWRIGHT_MODELS."""
    print(
        "| network | turns | before the first | between | behind the last | cycles |\n|---|---|---|---|---|---|",
        flush=True,
    )
    models = {name: lambda name=name: zoo.build_quantized(name) for name in NETWORKS}
    models["like MoveNet, 192x192"] = lambda: movenet(192)
    if folder := os.environ.get("TILEWRIGHT_MODELS"):
        models["vit_tiny_qdq"] = lambda: onnx.load(Path(folder) / "vit_tiny_qdq.onnx")
    for name, model in models.items():
        program = tw.compile(model(), preset("base"))
        (ends,) = ends_of(program)
        places = " | ".join(kinds_with_reasons(ops) for ops in (ends.front, ends.between, ends.behind))
        print(f"| {name} | {ends.turns} | {places} | {program_cycles(program):,} |", flush=True)


if __name__ == "__main__":
    main()
