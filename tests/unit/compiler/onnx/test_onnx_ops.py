"""Single nodes by onnx's reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.onnx.onnx_ops import Evaluator, evaluate


def test_a_node_of_an_old_opset_runs_any_number_of_times() -> None:
    squeeze = Evaluator(helper.make_node("Squeeze", ["x"], ["y"], axes=[1]), version=11)
    for size in (2, 5):
        (y,) = squeeze([np.zeros((size, 1), np.int8)])
        assert y.shape == (size,) and y.dtype == np.int8


def test_a_function_that_depends_on_types_has_those_of_its_inputs() -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    node = Node("GroupNormalization", ["x", "scale", "bias"], ["y"], {"num_groups": 2})
    (y,) = evaluate(node, [x, np.full(4, 2, np.float32), np.ones(4, np.float32)])
    groups = x.reshape(2, 2, 6)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, 2 * normal.reshape(x.shape) + 1, rtol=1e-5, atol=1e-5)


def test_unwanted_outputs_and_missing_inputs_have_no_name() -> None:
    x = np.array([3, 1, 2], np.float32)
    empty, places = evaluate(Node("TopK", ["x", "k"], ["", "places"], {}), [x, np.array([2])])
    assert empty.size == 0 and places.tolist() == [0, 2]
    (y,) = evaluate(Node("Clip", ["x", "", "high"], ["y"], {}), [x, None, np.float32(2)])
    assert y.tolist() == [2, 1, 2]


def test_inputs_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(CompileError, match=r"^Gather 'g' cannot be evaluated: index 4 is out of bounds [^\n]*$"):
        evaluate(Node("Gather", ["x", "at"], ["y"], {}, name="g"), [np.zeros(3, np.float32), np.array(4)])
