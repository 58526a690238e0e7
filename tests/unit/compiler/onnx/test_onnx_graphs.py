"""Names that nodes with branches and bodies read from the graphs around them."""

import onnx

from tilewright.compiler.onnx.onnx_graphs import all_nodes, captured, reads_of, subgraphs

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[2] x, float[2] y) => (float[2] z) {
    own = Neg (y)
    z = If (c) <
        then_branch: graph = a () => (float[2] p) { own = Abs (x)  p = Add (own, y) },
        else_branch: graph = b () => (float[2] q) { q = Identity (own) }
    >
}
"""


def nodes():
    return list(onnx.parser.parse_model(MODEL).graph.node)


def test_reads_of():
    neg, choice = nodes()
    assert reads_of([choice]) == ["c", "x", "y", "own"]
    assert reads_of([neg, choice]) == ["y", "c", "x"]
    then, other = subgraphs(choice)
    assert captured(then) == ["x", "y"]  # `own` is made inside
    assert captured(other) == ["own"]


def test_result_handed_out_as_it_came_in():
    graph = onnx.parser.parse_graph("b () => (float[2] x) { }")
    assert captured(graph) == ["x"]


def test_all_nodes():
    assert [n.op_type for n in all_nodes(nodes())] == ["Neg", "If", "Abs", "Add", "Identity"]
