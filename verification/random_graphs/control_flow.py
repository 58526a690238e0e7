"""Random graphs with If and Loop."""

from __future__ import annotations

from onnx import TensorProto, helper

from verification.random_graphs.builder import ONNX_TYPES, Builder, Tensor, is_number


def branch(b: Builder) -> None:
    """An If whose condition is a bool of the graph, with a branch that computes and one that passes through."""
    x = b.small(b.pick(lambda t: is_number(t) and t.exact))
    if x.name in b.feeds and b.random.random() < 0.5:
        x = b.like("Neg", x)
    c = b.pick(lambda t: t.dtype == "bool" and t.size > 0)
    flat = b.add("Reshape", [c.name, b.constant([-1])], [c.size], "bool", 1)
    one = b.add("Gather", [flat.name, b.constant(b.random.randrange(c.size))], [], "bool", 1, axis=0)
    y = b.name("t")
    graphs = []
    for op in b.random.sample(("Neg", "Abs", "Identity", "Relu"), 2):
        inner = b.name("b")
        info = helper.make_tensor_value_info(inner, ONNX_TYPES[x.dtype], x.shape)
        graphs.append(helper.make_graph([helper.make_node(op, [x.name], [inner])], b.name("g"), [], [info]))
    b.nodes.append(helper.make_node("If", [one.name], [y], then_branch=graphs[0], else_branch=graphs[1]))
    b.tensors.append(Tensor(y, x.shape, x.dtype, x.bound))


def loop(b: Builder) -> None:
    """A Loop of a fixed number of turns that adds to a state."""
    x = b.small(b.pick(lambda t: is_number(t) and t.exact))
    turns = b.random.randrange(1, 4)
    names = {k: b.name("l") for k in ("i", "go", "on", "state", "next")}
    scalar = lambda name, kind: helper.make_tensor_value_info(name, kind, [])
    state = lambda name: helper.make_tensor_value_info(name, ONNX_TYPES[x.dtype], x.shape)
    body = helper.make_graph(
        [
            helper.make_node("Identity", [names["go"]], [names["on"]]),
            helper.make_node("Add", [names["state"], x.name], [names["next"]]),
        ],
        b.name("g"),
        [scalar(names["i"], TensorProto.INT64), scalar(names["go"], TensorProto.BOOL), state(names["state"])],
        [scalar(names["on"], TensorProto.BOOL), state(names["next"])],
    )
    y = b.name("t")
    b.nodes.append(helper.make_node("Loop", [b.constant(turns), "", x.name], [y], body=body))
    b.tensors.append(Tensor(y, x.shape, x.dtype, x.bound * (turns + 1)))
