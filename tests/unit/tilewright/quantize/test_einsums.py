"""Einsum of two operands becomes a product that the NPU has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.common.onnx_models import model_of
from tilewright.quantize import quantize
from tilewright.quantize.observe import run, session
from tilewright.quantize.prepare import prepare
from tilewright.quantize.verifying import verify_here


def _model(equation: str, a: list[int], b: list[int], constants: str = "") -> onnx.ModelProto:
    """An Einsum of operands a and b, of which some are constants."""
    random = np.random.default_rng(0)
    shapes = {"a": a, "b": b}
    held = {name: random.normal(size=shapes[name]).astype(np.float32) for name in constants}
    node = helper.make_node("Einsum", ["a", "b"], ["y"], "product", equation=equation)
    return model_of([node], {k: v for k, v in shapes.items() if k not in held}, ["y"], held)


def _sample(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    inputs = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in inputs.items()}


@pytest.mark.parametrize(
    ("equation", "a", "b", "constants"),
    [
        ("bqhd,bkhd->bhqk", [2, 5, 4, 8], [2, 6, 4, 8], ""),
        ("bhqk,bkhd->bqhd", [2, 4, 5, 6], [2, 6, 4, 8], ""),
        ("...i,ij->...j", [3, 5, 8], [8, 4], "b"),
        ("oc,bcl->bol", [6, 8], [2, 8, 5], "a"),
        ("btnh,nhd->btd", [2, 5, 3, 4], [3, 4, 6], "b"),
        ("ij,jk", [5, 6], [6, 7], ""),
    ],
)
def test_products(equation: str, a: list[int], b: list[int], constants: str) -> None:
    model = _model(equation, a, b, constants)
    found = prepare(model)
    ops = {node.op_type for node in found.graph.node}
    assert "Einsum" not in ops and "MatMul" in ops
    sample = _sample(model)
    wanted, got = (run(session(m), sample)["y"] for m in (model, found))
    assert wanted.shape == got.shape and np.allclose(wanted, got, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [("ij,kj->j", [3, 4], [5, 4]), ("i,j->ij", [3], [4]), ("ii,ij->j", [3, 3], [3, 4]), ("ij,ij->ij", [3, 4], [3, 4])],
)
def test_what_stays(equation: str, a: list[int], b: list[int]) -> None:
    """Sums of one operand, outer products, diagonals, products of elements."""
    assert [node.op_type for node in prepare(_model(equation, a, b)).graph.node] == ["Einsum"]


def test_on_the_npu() -> None:
    model = _model("bqhd,bkhd->bhqk", [1, 8, 2, 16], [1, 8, 2, 16])
    projection = helper.make_node("MatMul", ["x", "w"], ["a"], "projection")
    inputs = [helper.make_tensor_value_info("x", 1, [1, 8, 2, 16]), model.graph.input[1]]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.node.insert(0, projection)
    weights = np.random.default_rng(2).normal(size=(16, 16)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    samples = [_sample(model, seed) for seed in range(8)]
    stacked = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
    verified = verify_here(quantize(model, stacked, check=False).model, samples[0])  # type: ignore[arg-type]
    assert verified.npu_macs == verified.macs == 8 * 2 * 16 * 16 + 2 * 8 * 8 * 16 and verified.report.ok
