"""Limits on what a small model may ask of the compiler, named with the node, the value and what is accepted."""

import contextlib
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.common.onnx_models import model_of
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import preset

Node = helper.make_node
H = 1 << 31


def doubling(depth: int) -> onnx.ModelProto:
    """Functions that each call the one before twice: 2**depth nodes."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = [helper.make_function("own", "f0", ["a"], ["b"], [Node("Relu", ["a"], ["b"])], imports)]
    for n in range(1, depth + 1):
        body = [Node(f"f{n - 1}", ["a"], ["t"], domain="own"), Node(f"f{n - 1}", ["t"], ["b"], domain="own")]
        made.append(helper.make_function("own", f"f{n}", ["a"], ["b"], body, imports))
    model = model_of([Node(f"f{depth}", ["x"], ["y"], domain="own")], {"x": [4]}, ["y"], opset=17)
    model.functions.extend(made)
    return model


def pool(op: str, length: int, outputs: Sequence[str] = ("y",), **attributes: object) -> onnx.ModelProto:
    return model_of([Node(op, ["x"], list(outputs), **attributes)], {"x": [1, 1, length]}, ["y"])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (pool("AveragePool", 1 << 24, kernel_shape=[1 << 24]), r"kernel_shape=\[16777216\].*up to 4194304"),
        (pool("MaxPool", 8, kernel_shape=[2], strides=[H]), "strides has 2147483648; up to 16777216"),
        (pool("MaxPool", 8, kernel_shape=[2], dilations=[H], pads=[H, H]), "up to 16777216"),
        (pool("MaxPool", 4096, ["y", "i"], kernel_shape=[2048]), "with indices; up to 1024"),
        (pool("AveragePool", 1 << 20, kernel_shape=[2]), "1048575 positions along an axis"),
        (model_of([Node("Relu", ["x"], ["y"])], {"x": [1, H]}, ["y"]), r"'x' would have shape \[1, 2147483648\]"),
        (model_of([Node("Add", ["x", "z"], ["y"])], {"x": [1 << 20, 1], "z": [1 << 20]}, ["y"]), "too large"),
        (model_of([Node("Concat", ["x"] * 20_001, ["y"], axis=0)], {"x": [4]}, ["y"]), "20001 inputs .* up to 20000"),
        (doubling(40), "more than 50000 nodes"),
        (model_of([Node("Gather", ["x", "i"], ["y"], axis=-(1 << 63))], {"x": [4], "i": [1]}, ["y"]), "axis has -9223"),
        (model_of([Node("Transpose", ["x"], ["y"], perm=[0, 2])], {"x": [4, 2, 3]}, ["y"]), "each of the 3 axes"),
        (model_of([Node("Transpose", ["x"], ["y"], perm=[0, 1, 1])], {"x": [4, 2, 3]}, ["y"]), "each of the 3 axes"),
        (model_of([Node("RNN", ["x", "w", "r"], ["y"], hidden_size=2)],
                  {"x": [3, 1, 4], "w": [1, 2, 4], "r": [2, 2]}, ["y"]), r"R has shape \[2, 2\]; 3 dimensions"),
    ],
)  # fmt: skip
def test_refused(model: onnx.ModelProto, says: str) -> None:
    with pytest.raises(CompileError, match=says):
        import_onnx(model)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_with_what_is_there(mode: str) -> None:
    """Only an axis that is padded has a table."""
    pads = numpy_helper.from_array(np.array([1, 0, 1, 0], np.int64), "pads")
    for length, refused in (((1 << 22) - 1, True), (8, False)):
        model = model_of([Node("Pad", ["x", "pads"], ["y"], name="p", mode=mode)], {"x": [length, 8]}, ["y"])
        model.graph.initializer.append(pads)
        says = f"Pad 'p': 4194305 positions along an axis; mode '{mode}' accepts up to 4194304"
        with pytest.raises(CompileError, match=says) if refused else contextlib.nullcontext():
            compile_graph(import_onnx(model), preset("tiny"), CompileOptions())


def test_functions_within_the_limit() -> None:
    assert len(import_onnx(doubling(5)).nodes) == 32


def test_a_shape_is_known_without_its_elements() -> None:
    graph = import_onnx(model_of([Node("Shape", ["x"], ["y"])], {"x": [1 << 30]}, ["y"]))
    assert np.array_equal(graph.const("y"), [1 << 30])
