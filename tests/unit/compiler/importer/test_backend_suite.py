"""ONNX's own node tests: import, run the front end, evaluate; the expected outputs come out, or one clear refusal."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tests.reference import quantized_ops
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import QUANTIZED_OPS
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.onnx.onnx_ops import schema_of
from tilewright.compiler.passes import run_passes

# Random by nature, sequences as outputs, or where onnx's reference evaluator cannot run its own op.
NOT_COMPARED = ("bernoulli", "test_if_seq", "maxpool_2d_same", "quantizelinear_e")


def _array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray | np.generic | int | float):
        return np.asarray(value)
    return numpy_helper.to_array(value)


def _import(model: Any, inputs: list[Any]) -> Any:
    """Open dimensions take the shapes of the test's inputs; inputs that decide shapes become constants."""
    shapes = {
        i.name: _array(x).shape
        for i, x in zip(model.graph.input, inputs)
        if any(not d.HasField("dim_value") for d in i.type.tensor_type.shape.dim)
    }
    try:
        return import_onnx(model, shapes)
    except CompileError as error:
        if "at compile time" not in str(error):
            raise
    constants = {
        i.name: _array(x)
        for i, x in zip(model.graph.input[1:], inputs[1:])
        if _array(x).size <= 64 and (_array(x).dtype.kind in "iub" or i.name in ("scales", "roi"))
    }
    return import_onnx(model, {k: v for k, v in shapes.items() if k not in constants}, constants)


def _read(folder: Path, kind: str) -> list[np.ndarray]:
    files = sorted(folder.glob(f"test_data_set_0/{kind}_*.pb"))
    return [numpy_helper.to_array(onnx.load_tensor(f)) for f in files]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator"])
def test_old_opsets(kind: str) -> None:
    """Models of opset 6 to 9 with initialisers among the inputs."""
    cases = load_model_tests(kind=kind)
    assert len(cases) > 30
    for case in cases:
        folder = Path(case.model_dir)
        graph = import_onnx(folder / "model.onnx")
        run_passes(graph)
        values = quantized_ops.run(graph, dict(zip(graph.inputs, _read(folder, "input"))))
        for name, expected in zip(graph.outputs, _read(folder, "output")):
            np.testing.assert_allclose(values[name], expected, rtol=2e-3, atol=1e-4, err_msg=case.name)


@pytest.fixture(scope="module")
def node_cases() -> list[Any]:
    """Made once: that takes as long as a part of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [c for c in load_model_tests(kind="node") if c.model is not None]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_node_tests(part: int, node_cases: list[Any]) -> None:
    imported, wrong = 0, []
    cases = node_cases[part::4]
    for case in cases:
        inputs, outputs = case.data_sets[0]
        try:
            graph = _import(case.model, inputs)
        except CompileError as error:
            assert "\n" not in str(error)
            continue
        except AttributeError:
            continue  # inputs that are no tensors
        run_passes(graph)
        imported += 1
        own = any(schema_of(n.op) is None and n.op not in QUANTIZED_OPS for n in graph)  # only the kernels know those
        if own or any(word in case.name for word in NOT_COMPARED):
            continue
        names = [i.name for i in case.model.graph.input]
        feeds = {n: _array(v) for n, v in zip(names, inputs) if n in graph.inputs}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = quantized_ops.run(graph, feeds)
        for name, value in zip(graph.outputs, outputs):
            expected, found = _array(value), values[name]
            same = expected.shape == found.shape and expected.dtype == found.dtype
            if expected.dtype.kind != "c":
                expected, found = expected.astype(np.float64), found.astype(np.float64)
            if not same or not np.allclose(found, expected, rtol=3 * case.rtol, atol=1e-5, equal_nan=True):
                wrong.append(case.name)
    assert not wrong
    assert imported >= 0.9 * len(cases)
