"""Sessions of onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.quantize.observe import copied, light, run, session


def test_large_constants_beside_the_model() -> None:
    """Large constants work in the model and beside it; the given model stays, and its copy is the same."""
    random = np.random.default_rng(0)
    a, b, c = (random.normal(size=(300, 300)).astype(np.float32) for _ in range(3))
    small = np.arange(300, dtype=np.float32)
    constants = [numpy_helper.from_array(v, n) for n, v in (("a", a), ("b", b), ("small", small))]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("MatMul", ["p", "b"], ["q"]),
        helper.make_node("Add", ["q", "small"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 300])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 300])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], constants), opset_imports=opset, ir_version=9)
    before = model.SerializeToString()
    value = random.normal(size=(2, 300)).astype(np.float32)
    found = run(session(model, constants=[numpy_helper.from_array(c, "c")]), {"x": value})["y"]
    assert np.allclose(found, (value @ a @ b + small) @ c, rtol=1e-4, atol=1e-2)
    assert model.SerializeToString() == before == copied(model).SerializeToString()
    inferred = onnx.shape_inference.infer_shapes(light(model))
    assert len(light(model).SerializeToString()) < 3000 and [i.name for i in inferred.graph.value_info][:2] == [
        "p",
        "q",
    ]
