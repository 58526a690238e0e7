"""The shared ONNX models: every quantised tensor of the fused graph equals onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.reference import quantized_ops
from tests.reference.onnxruntime_values import golden, quantized_names
from tilewright.compiler.graph.graph import QUANTIZED_OPS
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.passes import FRONTEND, run_passes

MODELS = ("mobilenet_v2_qdq", "mobilenet_v2_qoperator_u8", "resnet18_qdq", "vit_tiny_qdq")
MOVES = {"Reshape", "Transpose", "Gather", "QuantizeLinear", "DequantizeLinear"}


@pytest.mark.network
@pytest.mark.parametrize("name", MODELS)
def test_every_quantised_tensor(name: str, models_dir: Path) -> None:
    model = onnx.load(models_dir / f"{name}.onnx")
    graph = import_onnx(models_dir / f"{name}.onnx")
    run_passes(graph, [step for step in FRONTEND if step.name != "drop_rows"])  # tensors of some rows are no model's
    assert not {n.op for n in graph} - set(QUANTIZED_OPS) - MOVES

    x = graph.tensor(graph.inputs[0])
    feeds = {x.name: np.random.default_rng(1).normal(size=x.shape).astype(np.float32)}
    expected = golden(model, feeds)
    assert len(expected) == len(quantized_names(model)) + len(model.graph.output)  # every dump was faithful
    computed = quantized_ops.run(graph, feeds, given=expected)
    # A norm is onnxruntime's in floats, and the reference's here in float64.
    behind_float = {n.outputs[0] for n in graph if n.op == "QNorm"}
    behind_float |= {n.outputs[0] for n in graph if n.op == "QuantizeLinear" and n.inputs[0] not in graph.inputs}
    compared = 0
    for tensor, value in expected.items():
        if tensor not in computed:
            continue  # merged into a table or an equal tensor
        wrong = int((computed[tensor] != value).sum())
        assert wrong <= (value.size // 30000 if tensor in behind_float else 0), f"{tensor}: {wrong} of {value.size}"
        compared += value.size
    assert compared > 3_000_000
