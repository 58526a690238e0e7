"""Passes on float graphs: the values stay, the ops become the expected ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.common.onnx_models import graph_of, model_of
from tests.reference import quantized_ops
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.passes import FRONTEND, run_passes


class Net:
    """A float model written op by op."""

    def __init__(self, shape: list[int]) -> None:
        self.shape, self.nodes, self.constants, self.rng = shape, [], {}, np.random.default_rng(0)

    def c(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def r(self, *shape: int) -> str:
        return self.c(self.rng.uniform(0.5, 1.5, size=shape))

    def op(self, kind: str, *inputs: str, domain: str = "", **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attrs))
        return name

    def graph(self, output: str) -> Graph:
        model = model_of(self.nodes, {"x": self.shape}, {output: ["n"]}, self.constants, opset=20)
        return import_onnx(model)


def conv_bn(n: Net) -> str:
    y = n.op("Conv", "x", n.r(6, 4, 3, 3), n.r(6))
    y = n.op("BatchNormalization", y, n.r(6), n.r(6), n.r(6), n.r(6))
    return n.op("Add", n.op("Mul", y, n.r(1, 6, 1, 1)), n.r(6, 1, 1))


def conv_transpose_bn(n: Net) -> str:
    y = n.op("ConvTranspose", "x", n.r(4, 6, 2, 2))
    return n.op("BatchNormalization", y, n.r(6), n.r(6), n.r(6), n.r(6))


def bn_alone(n: Net) -> str:
    return n.op("BatchNormalization", "x", n.r(4), n.r(4), n.r(4), n.r(4))


def gelu(n: Net) -> str:
    gate = n.op("Add", n.op("Erf", n.op("Div", "x", n.c(np.sqrt(2)))), n.c(1))
    return n.op("Mul", n.op("Mul", "x", gate), n.c(0.5))


def gelu_half_first(n: Net) -> str:
    gate = n.op("Add", n.c(1), n.op("Erf", n.op("Mul", "x", n.c(np.sqrt(0.5)))))
    return n.op("Mul", n.op("Mul", n.c(0.5), "x"), gate)


def silu(n: Net) -> str:
    return n.op("Mul", n.op("Sigmoid", "x"), "x")


def hard_swish(n: Net) -> str:
    return n.op("Div", n.op("Mul", "x", n.op("Clip", n.op("Add", "x", n.c(3)), n.c(0), n.c(6))), n.c(6))


def layer_norm(n: Net) -> str:
    d = n.op("Sub", "x", n.op("ReduceMean", "x", n.c([-1], np.int64)))
    v = n.op("ReduceMean", n.op("Pow", d, n.c(2)), n.c([-1], np.int64))
    y = n.op("Div", d, n.op("Sqrt", n.op("Add", v, n.c(1e-5))))
    return n.op("Add", n.op("Mul", y, n.r(10)), n.r(10))


def reshapes(n: Net) -> str:
    y = n.op("Unsqueeze", n.op("Flatten", "x"), n.c([0], np.int64))
    return n.op("Reshape", n.op("Squeeze", y), n.c([5, -1], np.int64))


def transposes(n: Net) -> str:
    return n.op("Transpose", n.op("Transpose", "x", perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])


def neutral(n: Net) -> str:
    y = n.op("Add", n.op("Mul", "x", n.c(1)), n.c(0))
    return n.op("Div", n.op("Identity", n.op("Dropout", y)), n.c(4))


def pad_conv(n: Net) -> str:
    return n.op("Conv", n.op("Pad", "x", n.c([0, 0, 1, 2, 0, 0, 3, 4], np.int64)), n.r(2, 4, 3, 3), pads=[1, 0, 0, 1])


def shape_arithmetic(n: Net) -> str:
    size = n.op("Gather", n.op("Shape", "x"), n.c(0, np.int64))
    rows = n.op("Concat", n.op("Unsqueeze", size, n.c([0], np.int64)), n.c([-1], np.int64), axis=0)
    return n.op("Relu", n.op("Reshape", "x", rows))


def mat_mul_bias(n: Net) -> str:
    flat = n.op("Reshape", "x", n.c([16, -1], np.int64))
    return n.op("Add", n.op("MatMul", flat, n.r(20, 3)), n.r(3))


def common(n: Net) -> str:
    return n.op("Add", n.op("Exp", "x"), n.op("Exp", "x"))


def expand(n: Net) -> str:
    return n.op("Mul", "x", n.op("Expand", n.r(4, 1, 1), n.c([1, 4, 8, 10], np.int64)))


def fused_conv(n: Net) -> str:
    return n.op("FusedConv", "x", n.r(6, 4, 3, 3), n.r(6), domain="com.microsoft", activation="Relu")


def matmul_chain(n: Net) -> str:
    """[320, 1] @ [1, 320] @ [320, 2]: the outer product is never made."""
    column = n.op("Reshape", "x", n.c([320, 1], np.int64))
    row = n.op("Reshape", "x", n.c([1, 320], np.int64))
    return n.op("MatMul", n.op("MatMul", column, row), n.r(320, 2))


def constant_factors(n: Net) -> str:
    """Two small constant factors behind each other become one."""
    return n.op("MatMul", n.op("MatMul", "x", n.r(10, 8)), n.r(8, 6))


def low_rank(n: Net) -> str:
    """Factors of rank 1 stay: their product would be larger."""
    return n.op("MatMul", n.op("MatMul", "x", n.r(10, 1)), n.r(1, 30))


def channels_last(n: Net) -> str:
    """A network exported with channels last: every layer between two transposes."""
    y = n.op("Transpose", n.op("Conv", "x", n.r(6, 4, 3, 3)), perm=[0, 2, 3, 1])
    y = n.op("Relu", n.op("Add", n.op("Mul", y, n.r(6)), n.r(1, 1, 1, 6)))
    y = n.op("Conv", n.op("Transpose", y, perm=[0, 3, 1, 2]), n.r(2, 6, 1, 1))
    return n.op("Sigmoid", y)


def two_branches(n: Net) -> str:
    a = n.op("Transpose", n.op("Sin", "x"), perm=[0, 2, 3, 1])
    b = n.op("Transpose", n.op("Cos", "x"), perm=[0, 2, 3, 1])
    y = n.op("Softmax", n.op("Mul", n.op("Relu", a), b), axis=-1)
    return n.op("Transpose", y, perm=[0, 3, 1, 2])


def transposed_mean(n: Net) -> str:
    y = n.op("Transpose", n.op("Sin", "x"), perm=[0, 2, 3, 1])
    return n.op("ReduceMean", y, n.c([1, 2], np.int64), keepdims=0)


def transposed_mean_kept(n: Net) -> str:
    y = n.op("Transpose", n.op("Sin", "x"), perm=[0, 2, 3, 1])
    return n.op("ReduceMean", y, n.c([1, 2], np.int64), keepdims=1)


def lonely_transpose(n: Net) -> str:
    """Nothing to meet: it stays where it is."""
    return n.op("Relu", n.op("Transpose", "x", perm=[0, 2, 3, 1]))


CASES: list[tuple[Callable[[Net], str], dict[str, int]]] = [
    (conv_bn, {"Conv": 1}),
    (conv_transpose_bn, {"ConvTranspose": 1}),
    (bn_alone, {"Mul": 1, "Add": 1}),
    (gelu, {"Gelu": 1}),
    (gelu_half_first, {"Gelu": 1}),
    (silu, {"Swish": 1}),
    (hard_swish, {"HardSwish": 1}),
    (layer_norm, {"LayerNormalization": 1}),
    (reshapes, {"Reshape": 1}),
    (transposes, {"Identity": 1}),
    (neutral, {"Mul": 1}),
    (pad_conv, {"Conv": 1}),
    (shape_arithmetic, {"Reshape": 1, "Relu": 1}),
    (mat_mul_bias, {"Reshape": 1, "Gemm": 1}),
    (common, {"Exp": 1, "Add": 1}),
    (expand, {"Mul": 1}),
    (fused_conv, {"Conv": 1, "Relu": 1}),
    (matmul_chain, {"Reshape": 2, "MatMul": 2}),
    (constant_factors, {"MatMul": 1}),
    (low_rank, {"MatMul": 2}),
    (channels_last, {"Conv": 2, "Relu": 1, "Sigmoid": 1}),
    (two_branches, {"Sin": 1, "Cos": 1, "Relu": 1, "Mul": 1, "Softmax": 1}),
    (transposed_mean, {"Sin": 1, "ReduceMean": 1}),
    (transposed_mean_kept, {"Sin": 1, "ReduceMean": 1, "Reshape": 1}),
    (lonely_transpose, {"Transpose": 1, "Relu": 1}),
]


@pytest.mark.parametrize(("write", "ops"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_values_stay(write: Callable[[Net], str], ops: dict[str, int]) -> None:
    net = Net([1, 4, 8, 10])
    graph = net.graph(write(net))
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 4, 8, 10)).astype(np.float32)}
    before = quantized_ops.run(graph, feeds)[graph.outputs[0]]
    run_passes(graph)
    after = quantized_ops.run(graph, feeds)[graph.outputs[0]]
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    assert Counter(n.op for n in graph) == ops, str(graph)


def test_print_after() -> None:
    net, printed = Net([1, 4, 8, 10]), []
    run_passes(net.graph(silu(net)), print_after=["recognise", "clean_up"], out=printed.append)
    assert [p.splitlines()[0] for p in printed] == ["--- after recognise ---", "--- after clean_up ---"]
    assert "Swish(x)" in printed[0]
    printed.clear()
    run_passes(net.graph(net.nodes[-1].output[0]), print_after=["all"], out=printed.append)
    assert len(printed) == len(FRONTEND)


def test_every_pass_is_documented() -> None:
    assert len({p.name for p in FRONTEND}) == len(FRONTEND)
    assert all(p.doc and p.run.__module__.startswith("tilewright.compiler.passes") for p in FRONTEND)


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_loop_unrolls(trips: int) -> None:
    body = graph_of(
        [helper.make_node("Mul", ["v", "v"], ["w"]), helper.make_node("Identity", ["go"], ["still"])],
        {"i": np.int64(0), "go": np.bool_(True), "v": [2]},
        {"still": np.bool_(True), "w": [2]},
    )
    loop = helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)
    model = model_of([loop], {"x": [2]}, {"y": [2]}, {"n": np.int64(trips), "yes": np.bool_(True)}, opset=20)
    onnx.checker.check_model(model)
    imported = import_onnx(model)
    run_passes(imported)
    x = np.asarray([1.5, -2.0], np.float32)
    np.testing.assert_allclose(quantized_ops.run(imported, {"x": x})["y"], x ** (2**trips))


def test_runtime_trip_count_is_refused() -> None:
    net = Net([2])
    net.nodes.append(helper.make_node("NonZero", ["x"], ["where"]))
    with pytest.raises(CompileError, match="NonZero 'where'"):
        net.graph("where")
