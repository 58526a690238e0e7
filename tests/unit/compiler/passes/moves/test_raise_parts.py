"""Queries, keys and values that one product makes together: onnxruntime's bytes, in one turn of the NPU."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tilewright.api.source import ModelSource
from tilewright.compiler.passes import run_passes
from tilewright.isa.config import PRESETS
from tilewright.isa.program import NpuStep

TOKENS = 20


def parts(m: Model, packed: str, op: str) -> list[str]:
    """The three parts of [3, ...], without their first axis."""
    if op == "Gather":
        return [m.op("Gather", packed, m.const(i, np.int64), axis=0) for i in (0, 1, -1)]
    if op == "Split":
        taken = m.op("Split", packed, axis=0, outputs=3, num_outputs=3)
    else:
        taken = [m.op("Slice", packed, *(m.const([v], np.int64) for v in (i, i + 1, 0))) for i in range(3)]
    return [m.op("Squeeze", part, m.const([0], np.int64)) for part in taken]


def attention(dtype: type, op: str, between: bool, heads: int = 3, depth: int = 16, batch: int = 1) -> Model:
    """Attention as timm exports it; with quantisers between the moves, as onnxruntime's quantisation writes it, or
    without."""
    width, zero = heads * depth, 3 if dtype == np.int8 else 131
    m = Model(dtype, 3)
    again = (lambda x: m.requantized(x, 0.02, zero)) if between else lambda x: x
    rows = m.requantized(m.op("MatMul", m.input((batch, TOKENS, 32)), m.weights((32, 3 * width))), 0.02, zero)
    packed = again(m.op("Reshape", rows, m.const([batch, TOKENS, 3, heads, depth], np.int64)))
    packed = again(m.op("Transpose", packed, perm=[2, 0, 3, 1, 4]))
    queries, keys, values = parts(m, packed, op)
    scores = m.requantized(m.op("MatMul", queries, m.op("Transpose", keys, perm=[0, 1, 3, 2])), 0.06, zero)
    mixed = m.op("Transpose", m.requantized(m.op("MatMul", scores, values), 0.2, zero), perm=[0, 2, 1, 3])
    mixed = m.op("Reshape", mixed, m.const([batch, TOKENS, width], np.int64))
    m.output(m.requantized(m.op("MatMul", mixed, m.weights((width, 24))), 0.3, zero))
    return m


@pytest.mark.medium
@pytest.mark.parametrize(
    ("dtype", "op", "between"),
    [(np.int8, "Gather", False), (np.int8, "Split", True), (np.uint8, "Slice", False), (np.uint8, "Gather", True)],
)
def test_heads_of_one_product(dtype: type, op: str, between: bool) -> None:
    m = attention(dtype, op, between)
    model, config = m.build(), PRESETS["base"]
    assert sum(isinstance(step, NpuStep) for step in tw.compile(model, config).steps) == 1
    report = tw.check(model, m.feeds(), config=config, cache=False)
    assert report.ok and report.rows, report.summary()


@pytest.mark.medium
@pytest.mark.parametrize("between", [False, True])
def test_heads_that_are_turned_before_an_axis_of_one_goes(between: bool) -> None:
    """Attention as tf2onnx writes it: parts are turned as they are cut, with an axis of size 1 among the others."""
    heads, depth, zero = 4, 8, 3
    m = Model(np.int8, 3)
    again = (lambda x: m.requantized(x, 0.02, zero)) if between else lambda x: x
    rows = m.requantized(m.op("MatMul", m.input((1, TOKENS, 32)), m.weights((32, 3 * 32))), 0.02, zero)
    packed = again(m.op("Reshape", rows, m.const([1, TOKENS, 3, heads, depth], np.int64)))
    taken = [again(x) for x in m.op("Split", packed, axis=2, outputs=3, num_outputs=3)]
    turned = lambda x: m.op("Squeeze", again(m.op("Transpose", x, perm=[2, 0, 3, 1, 4])), m.const([0], np.int64))
    keys = m.op("Transpose", m.op("Squeeze", taken[1], m.const([2], np.int64)), perm=[0, 2, 3, 1])
    scores = m.requantized(m.op("MatMul", turned(taken[0]), keys), 0.06, zero)
    mixed = m.op("Transpose", m.requantized(m.op("MatMul", scores, turned(taken[2])), 0.2, zero), perm=[0, 2, 1, 3])
    mixed = m.op("Reshape", mixed, m.const([1, TOKENS, 32], np.int64))
    m.output(m.requantized(m.op("MatMul", mixed, m.weights((32, 24))), 0.3, zero))
    model, config = m.build(), PRESETS["base"]
    assert sum(isinstance(step, NpuStep) for step in tw.compile(model, config).steps) == 1
    report = tw.check(model, m.feeds(), config=config, cache=False)
    assert report.ok and report.rows, report.summary()


def floats(shape: list[int], perm: list[int], op: str, **attrs: object) -> onnx.ModelProto:
    """Parts of a float tensor [2, 12, 5] that is divided to `shape`; `attrs` of Split, or the places of a Gather."""
    reshaped = helper.make_node("Reshape", ["x", "shape"], ["divided"])
    turned = helper.make_node("Transpose", ["divided"], ["packed"], perm=perm)
    axis = attrs["axis"]
    if op == "Split":
        sizes = np.array(attrs["sizes"], np.int64)
        names = [f"y{i}" for i in range(len(sizes))]
        reader = [helper.make_node("Split", ["packed", "sizes"], names, axis=axis)]
        constants = {"sizes": sizes}
    else:
        names, constants = ["y0"], {"sizes": np.array(attrs["places"], np.int64)}
        reader = [helper.make_node("Gather", ["packed", "sizes"], names, axis=axis)]
    constants["shape"] = np.array(shape, np.int64)
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 12, 5])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([reshaped, turned, *reader], "parts", [given], outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.output}
    for out in model.graph.output:
        out.CopyFrom(inferred[out.name])
    return model


@pytest.mark.parametrize(
    ("model", "moved"),
    [
        (floats([2, 3, 4, 5], [1, 0, 3, 2], "Split", axis=0, sizes=[1, 2]), True),
        (floats([2, 3, 4, 5], [0, 2, 3, 1], "Gather", axis=3, places=[1, 2]), True),
        (floats([2, 3, 4, 5], [2, 1, 0, 3], "Gather", axis=-3, places=-1), True),
        (floats([2, 4, 3, 5], [2, 0, 1, 3], "Gather", axis=0, places=1), False),  # every third element of a row
        (floats([2, 3, 4, 5], [1, 0, 2, 3], "Gather", axis=0, places=[2, 0]), False),
        (floats([24, 5], [1, 0], "Split", axis=1, sizes=[3, 21]), False),  # no axis is split
        (floats([2, 3, 4, 5], [1, 0, 2, 3], "Split", axis=0, sizes=[0, 3]), False),
    ],
)
def test_parts_of_floats(model: onnx.ModelProto, moved: bool) -> None:
    graph = ModelSource(model).graph()
    run_passes(graph)
    assert any(node.op == "Slice" for node in graph) == moved
    x = {"x": np.random.default_rng(0).normal(size=(2, 12, 5)).astype(np.float32)}
    with tw.Device("functional", PRESETS["tiny"]) as device:
        found = device.run(tw.compile(model, PRESETS["tiny"]), x)
    for name, wanted in onnx_models.run(model, x).items():
        np.testing.assert_array_equal(found[name], wanted)
