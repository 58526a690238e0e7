"""Random small quantised models: the fused graph gives onnxruntime's bytes for every quantised tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reference import quantized_ops
from tests.reference.onnxruntime_values import golden
from tests.reference.quantized_cases import CASES
from tests.reference.quantized_models import Model
from tilewright.compiler.graph.graph import QUANTIZED_OPS
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.passes import run_passes

FLOAT_FREE = set(CASES) - {"extremum", "where", "arg_max"}


@pytest.mark.medium
@pytest.mark.parametrize("name", sorted(CASES))
@settings(max_examples=6, suppress_health_check=list(HealthCheck), derandomize=True)
@given(variant=st.integers(0, 47), seed=st.integers(0, 10_000), signed=st.booleans())
def test_equals_onnxruntime(name: str, variant: int, seed: int, signed: bool) -> None:
    model = Model(np.int8 if signed else np.uint8, seed)
    CASES[name](model, variant)
    proto, feeds = model.build(), model.feeds()
    expected = golden(proto, feeds)
    graph = import_onnx(proto)
    run_passes(graph)
    computed = quantized_ops.run(graph, feeds)
    compared = 0
    for tensor, value in expected.items():
        if tensor not in computed or value.dtype.kind not in "iu":
            continue
        compared += 1
        assert computed[tensor].dtype == value.dtype
        wrong = int((computed[tensor] != value).sum())
        assert wrong == 0, f"{tensor}: {wrong} of {value.size} differ\n{graph}"
    assert compared
    if name in FLOAT_FREE:
        left = {n.op for n in graph} - set(QUANTIZED_OPS) - {"QuantizeLinear", "DequantizeLinear"}
        assert left <= {"Reshape", "Transpose", "Slice", "Split", "Pad", "Resize"}, left
