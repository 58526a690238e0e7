"""Groups of nodes: connected, and never left and entered again."""

import itertools
import random

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.common.onnx_models import model_of
from tests.common.quantized_chain import quantized_chain
from tilewright.onnxruntime.parts import Parts, digest

SHAPE = (2, 3)


def described(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    """A model whose values all have the same shape, as onnxruntime describes them."""
    made = [name for node in nodes for name in node.output]
    model = model_of(nodes, {"x": SHAPE}, dict.fromkeys(outputs, SHAPE))
    model.graph.value_info.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in made)
    return model


def random_graph(seed: int) -> tuple[Parts, set[int]]:
    rng = random.Random(seed)
    values, nodes = ["x"], []
    for i in range(rng.randint(3, 14)):
        a, b = rng.choice(values[-5:]), rng.choice(values[-5:])
        nodes.append(helper.make_node("Add", [a, b], [f"v{i}"], f"n{i}"))
        values.append(f"v{i}")
    left = {i for i in range(len(nodes)) if rng.random() < 0.3}
    return Parts(described(nodes, [values[-1]])), left


def reachable(parts: Parts, start: set[int]) -> set[int]:
    """Nodes that depend on nodes of `start`."""
    found: set[int] = set()
    made = {name for i in start for name in parts.nodes[i].output}
    for i, node in enumerate(parts.nodes):
        if made & set(node.input):
            found.add(i)
            made |= set(node.output)
    return found


def test_groups_can_be_one_node() -> None:
    """No path leads from a group through a node outside of it and back; the graph of groups has no circle."""
    sizes = []
    for seed in range(300):
        parts, left = random_graph(seed)
        groups = parts.groups(left)
        assert sorted(itertools.chain(*groups)) == [i for i in range(len(parts.nodes)) if i not in left]
        for group in groups:
            inside = set(group)
            after = reachable(parts, inside) - inside
            assert not reachable(parts, after) & inside, (seed, group)
        sizes += [len(group) for group in groups]
    assert max(sizes) > 6


def test_a_way_around_splits() -> None:
    """a -> b -> d and a -> left -> d: d cannot join a."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["a"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
    ]
    assert Parts(described(nodes, ["d"])).groups({2}) == [[0, 1], [3]]
    assert Parts(described(nodes, ["d"])).groups(()) == [[0, 1, 2, 3]]


def test_part_is_a_model_by_itself() -> None:
    model = described([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "w"], ["y"])], ["y", "a"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(SHAPE, np.float32), "w"))
    part = Parts(model).part([1])
    onnx.checker.check_model(part)
    assert [v.name for v in part.graph.input] == ["a"]
    assert [v.name for v in part.graph.output] == ["y"]
    assert [t.name for t in part.graph.initializer] == ["w"]
    first = Parts(model).part([0])
    assert [v.name for v in first.graph.output] == ["a"] and not first.graph.initializer


def test_digest_is_of_what_is_computed() -> None:
    model = quantized_chain()
    other = onnx.ModelProto()
    other.CopyFrom(model)
    order = list(reversed(other.graph.node))
    del other.graph.node[:]
    other.graph.node.extend(order)
    other.graph.node[0].name = "another name"
    assert digest(other) == digest(model)
    other.graph.initializer[0].raw_data = b"\x00\x00\x80\x40"
    assert digest(other) != digest(model)


def test_reasons_against_nodes() -> None:
    model = described([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])], ["y"])
    assert [Parts(model).reason_against(i) for i in (0, 1)] == ["", ""]
    model.graph.value_info[0].type.tensor_type.shape.dim[0].Clear()
    assert "the shape of 'a' is not known" in Parts(model).reason_against(0)
    model.graph.value_info[0].type.tensor_type.ClearField("shape")
    assert "the shape of 'a' is not known" in Parts(model).reason_against(1)
    model.graph.value_info[0].type.tensor_type.elem_type = TensorProto.STRING
    assert "'a' holds no numbers" in Parts(model).reason_against(1)
    model.graph.value_info[0].ClearField("type")
    assert "'a' is no tensor" in Parts(model).reason_against(1)
