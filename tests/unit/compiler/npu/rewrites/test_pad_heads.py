"""Heads of attention that do not fill blocks of channels: onnxruntime's bytes in one step of the NPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tests.unit.compiler.passes.moves.test_raise_parts import TOKENS, attention
from tilewright import zoo
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep, NpuStep


def checked(model: onnx.ModelProto, feeds: dict[str, np.ndarray], config: str) -> int:
    """Returns the number of NPU steps, after both simulators gave onnxruntime's bytes."""
    program = tw.compile_program(model, config, cache=False)
    report = tw.check(model, feeds, program=program)
    assert report.ok and report.rows, report.summary()
    got, timed = (tw.Device(kind, PRESETS[config]).run(program, feeds) for kind in ("functional", "cycle"))
    assert all(np.array_equal(got[name], timed[name]) and len(np.unique(got[name])) > 8 for name in got)
    ops = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
    assert "PackMatMulParams" not in ops
    return sum(isinstance(step, NpuStep) for step in program.steps)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("dtype", "op", "between", "heads", "depth", "batch", "config"),
    [
        (np.int8, "Gather", False, 4, 8, 1, "base"),
        (np.int8, "Split", False, 4, 8, 2, "base"),
        (np.uint8, "Split", True, 3, 8, 1, "base"),  # parts that begin within a block
        (np.int8, "Slice", True, 2, 24, 1, "base"),  # more than a block
        (np.uint8, "Gather", False, 5, 4, 1, "tiny"),
    ],
)
def test_heads_of_one_product(
    dtype: type, op: str, between: bool, heads: int, depth: int, batch: int, config: str
) -> None:
    m = attention(dtype, op, between, heads, depth, batch)
    assert checked(m.build(), m.feeds(), config) == 1


@pytest.mark.medium
@pytest.mark.parametrize(("masked", "rows"), [(False, [1, TOKENS]), (True, [1, TOKENS]), (False, [TOKENS])])
def test_heads_of_three_products(masked: bool, rows: list[int]) -> None:
    """Attention as in BERT, with a softmax between the products and perhaps a mask before it, takes one step.

    Heads are joined to rows with a batch axis or without.
    """
    heads, depth = 4, 8
    m = Model(np.int8, 5)
    x = m.input((1, TOKENS, 32))

    def part(perm: list[int]) -> str:
        made = m.requantized(m.op("MatMul", x, m.weights((32, heads * depth))), 0.05, 3)
        divided = m.op("Reshape", made, m.const([1, TOKENS, heads, depth], np.int64))
        return str(m.op("Transpose", divided, perm=perm))

    scores = m.requantized(m.op("MatMul", part([0, 2, 1, 3]), part([0, 2, 3, 1])), 0.1, 7)
    if masked:
        hidden = m.const(np.where(np.arange(TOKENS) < 15, 0, -20.0).reshape(1, 1, 1, TOKENS), np.float32)
        scores = m.requantized(m.op("Add", scores, m.requantized(hidden, 0.17, 0)), 0.19, 7)
    shares = m.requantized(m.op("Softmax", scores, axis=-1), 1 / 256, -128)
    mixed = m.op("Transpose", m.requantized(m.op("MatMul", shares, part([0, 2, 1, 3])), 0.02, 0), perm=[0, 2, 1, 3])
    mixed = m.op("Reshape", mixed, m.const([*rows, heads * depth], np.int64))
    m.output(m.requantized(m.op("MatMul", mixed, m.weights((heads * depth, 24))), 0.03, 0))
    assert checked(m.build(), m.feeds(), "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize(("dtype", "depth", "batch", "config"), [(np.int8, 8, 1, "base"), (np.uint8, 20, 2, "base")])
def test_single_head(dtype: type, depth: int, batch: int, config: str) -> None:
    """Queries, keys and values of one head come out of products as they are read, but for the keys, which turn."""
    m = Model(dtype, 5)
    x = m.input((batch, TOKENS, 32))
    queries, keys, values = (
        m.requantized(m.op("MatMul", x, m.weights((32, depth))), 0.05, 3) for _ in range(3)
    )  # fmt: skip
    scores = m.requantized(m.op("MatMul", queries, m.op("Transpose", keys, perm=[0, 2, 1])), 0.1, 7)
    shares = m.requantized(m.op("Softmax", scores, axis=-1), 1 / 256, np.iinfo(dtype).min)
    mixed = m.requantized(m.op("MatMul", shares, values), 0.02, 1)
    m.output(m.requantized(m.op("MatMul", mixed, m.weights((depth, 24))), 0.03, 0))
    assert checked(m.build(), m.feeds(), config) == 1


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("deit", {"size": 32, "patch": 8, "width": 32, "heads": 4, "layers": 1, "classes": 20}),
        ("bert", {"tokens": 24, "width": 32, "heads": 4, "layers": 1, "vocabulary": 100, "classes": 20}),
    ],
)
def test_networks(name: str, parameters: dict[str, Any]) -> None:
    """The last block of these networks has one row, and a product of it with keys and values."""
    model = zoo.build_quantized(name, **parameters)
    if name == "bert":
        feeds = {model.graph.input[0].name: np.random.default_rng(1).integers(0, 100, (1, 24))}
    else:
        feeds = {model.graph.input[0].name: np.random.default_rng(1).normal(size=(1, 3, 32, 32)).astype(np.float32)}
    assert checked(model, feeds, "base") == 1
