"""A batch that the model leaves open has one element, with a note; any other open dimension is refused."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.compiler.errors import CompileError, OpenShapeError
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.importer.onnx.inputs import open_batches
from tilewright.compiler.stages.note_forms import OPEN_BATCH


def values(shapes: dict[str, list[int | str | None]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()]


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        ({"x": ["N", 3, 8, 8]}, {"x": [0]}),
        ({"x": [None, 3, 8, 8]}, {"x": [0]}),
        ({"x": ["?", 784]}, {"x": [0]}),
        ({"x": [-1, 784]}, {"x": [0]}),
        ({"x": ["unk__12", 3, "h", "w"]}, {"x": [0]}),
        ({"x": ["batch_size"]}, {"x": [0]}),
        ({"x": ["seq", "batch", 40]}, {"x": [1]}),
        ({"h": [2, "batch", 64], "x": ["batch", "time", 8]}, {"h": [1], "x": [0]}),
        ({"x": ["s0", 8], "y": ["s0"]}, {"x": [0], "y": [0]}),
        ({"x": ["seq_len", 40]}, {}),
        ({"x": ["n_points", 3]}, {}),
        ({"x": ["k", "k"]}, {}),
        ({"x": ["k", 4], "y": [4, "k"]}, {}),
        ({"x": [None]}, {}),
        ({"x": ["k"]}, {}),
        ({"x": []}, {}),
        ({"x": [0, 3]}, {}),
        ({"x": [1, 3]}, {}),
    ],
)
def test_what_is_a_batch(shapes: dict[str, list[int | str | None]], found: dict[str, list[int]]) -> None:
    assert open_batches(values(shapes), {}) == found


def test_a_size_that_is_given_is_known() -> None:
    inputs = values({"x": ["N", 3], "y": ["N", 4], "z": [None, 5]})
    assert open_batches(inputs, {"x": [7, 3]}) == {"z": [0]}


def model(*nodes: onnx.NodeProto, **inputs: list[int | str | None]) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", values(inputs), [helper.make_empty_tensor_value_info("out")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_all_inputs_have_one_batch() -> None:
    add = model(helper.make_node("Add", ["x", "y"], ["out"]), x=["N", 4], y=["N", 1])
    graph = import_onnx(add, batch=1)
    assert [graph.tensor(name).shape for name in graph.inputs] == [(1, 4), (1, 1)]
    (note,) = graph.notes
    assert note.startswith(OPEN_BATCH) and "--shape x=N,4 --shape y=N,1 gives another" in note
    given = import_onnx(add, {"x": [3, 4]}, batch=1)
    assert given.tensor("y").shape == (3, 1) and given.notes == []
    with pytest.raises(OpenShapeError, match=r"dimension 0 .*set it with --shape x=1,4"):
        import_onnx(add)


def test_other_open_dimensions_are_refused() -> None:
    open_ = model(helper.make_node("Relu", ["x"], ["out"]), x=["batch", "seq"])
    with pytest.raises(OpenShapeError, match=r"dimension 1 \('seq'\) open; set it with --shape x=1,128"):
        import_onnx(open_, batch=1)


def test_an_error_behind_it_says_which_size_it_has() -> None:
    """A model that was exported for a batch of four may say so inside only."""
    fixed = model(helper.make_node("Reshape", ["x", "to"], ["out"]), x=["N", 6])
    fixed.graph.initializer.append(helper.make_tensor("to", TensorProto.INT64, [3], [4, 3, 2]))
    with pytest.raises(CompileError, match="open batch: dimension 0 of input 'x' is open in the model and 1 here"):
        import_onnx(fixed, batch=1)
    assert import_onnx(fixed, {"x": [4, 6]}, batch=1).notes == []
