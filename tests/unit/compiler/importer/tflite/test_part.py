"""Parts of TFLite models: what is refused and why, and graphs of some operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.common.tflite_models import Model, Op, T
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.tflite.part import import_part, survey
from tilewright.compiler.importer.tflite.schema import FileModel, read

Q = {"scale": 0.1, "zero": 3}


def network() -> FileModel:
    """RELU, an unknown operator, RELU; beside them the shape of the input, and a reshape to it."""
    tensors = [T(name, (1, 2, 3, 4), **Q) for name in ("x", "a", "b", "c", "d")] + [T("shape", (4,), "int32")]
    found = [
        Op("RELU", ["x"], ["a"]),
        Op("Mystery", ["a"], ["b"]),
        Op("RELU", ["b"], ["c"]),
        Op("SHAPE", ["x"], ["shape"], ("ShapeOptions", {"OutType": 2})),
        Op("RESHAPE", ["c", "shape"], ["d"], ("ReshapeOptions", {})),
    ]
    return read(Model(tensors, found, ["x"], ["d", "a"]).build())


def test_what_is_refused_leaves_the_rest() -> None:
    found = survey(network())
    assert list(found.refused) == [1] and "a custom operator" in found.refused[1]
    assert found.graph.inputs == ["x", "b"]
    assert [node.origin[0] for node in found.graph if node.quantized is not None] == [
        "RELU (op 0, version 1)",
        "RELU (op 2, version 1)",
    ]
    ((index, value),) = found.known.items()
    assert index == 5 and value.tolist() == [1, 2, 3, 4]


def test_shapes_that_are_asked_for() -> None:
    """Sizes that follow are those; what the refused operator makes has the size of the file."""
    found = survey(network(), {0: (2, 2, 3, 4)})
    assert found.graph.tensor("x").shape == (2, 2, 3, 4) and found.graph.tensor("b").shape == (1, 2, 3, 4)
    assert found.known[5].tolist() == [2, 2, 3, 4]
    assert "RESHAPE" in found.refused[4]  # 24 elements are no 2x2x3x4


def test_a_part_is_a_graph_of_its_own() -> None:
    model = network()
    known = survey(model).known
    graph = import_part(model, [2, 4], [2], [4], {2: (1, 2, 3, 4)}, known)
    assert (graph.inputs, graph.outputs) == (["b"], ["d"])
    assert [node.op for node in graph if node.quantized is not None] and graph.tensor("d").shape == (1, 2, 3, 4)
    wider = import_part(model, [2], [2], [3], {2: (5, 1, 1, 4)}, {})
    assert wider.tensor(wider.outputs[0]).shape == (5, 1, 1, 4)
    with pytest.raises(CompileError, match="RESHAPE"):
        import_part(model, [2, 4], [2], [4], {2: (5, 1, 1, 4)}, known)
    with pytest.raises(CompileError, match="reads 'b', which no operator before it makes"):
        import_part(model, [2], [0], [3], {0: (1, 2, 3, 4)}, {})


def test_nothing_but_refused() -> None:
    tensors = [T("x", (2,), **Q), T("y", (2,), **Q)]
    found = survey(read(Model(tensors, [Op("Mystery", ["x"], ["y"])], ["x"], ["y"]).build()))
    assert not found.graph.outputs and list(found.refused) == [0]


def test_types_that_cannot_be_handed_over() -> None:
    """16-bit activations are left where they are; a type we do not have, wherever it is read."""
    tensors = [T("x", (2,), **Q), T("y", (2,), "int16", 0.1), T("z", (2,), **Q)]
    steps = [Op("QUANTIZE", ["x"], ["y"]), Op("QUANTIZE", ["y"], ["z"])]
    found = survey(read(Model(tensors, steps, ["x"], ["z"]).build()))
    assert all("16-bit activations run on the CPU" in found.refused[k] for k in (0, 1))
    model = network()
    model.tensors[2] = replace(model.tensors[2], dtype=None, type_name="STRING")
    found = survey(model)
    assert set(found.refused) == {1, 2} and "'b', which cannot be handed over: input 'b' is STRING" in found.refused[2]
