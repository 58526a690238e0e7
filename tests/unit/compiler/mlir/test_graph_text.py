"""Graphs as MLIR text: what is written is read again as it was, and compiles to the same program."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.unit.compiler.importer.tosa.random_graphs import RandomProgram
from tests.unit.compiler.npu.golden import cases
from tilewright.common.errors import TilewrightError
from tilewright.compiler.graph.graph import QUANTIZED_OPS, DroppedChannels, Graph, Node, Quant, State, Tensor
from tilewright.compiler.graph.ops.elementwise import AddConstants
from tilewright.compiler.graph.ops.interpolate import Places
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.zoo.catalogue import ZOO, build_quantized

pytest.importorskip("xdsl")

from tilewright.compiler.importer.mlir_graph import read_graph
from tilewright.compiler.importer.tosa import import_tosa
from tilewright.compiler.importer.tosa.reading import parse
from tilewright.compiler.mlir.graph_text import graph_text

ODD = 'é "q" \\ \n{}'
F32 = np.dtype(np.float32)
VALUES = {
    "integer": -(1 << 63), "real": 1e-05, "whole": 3.0, "large": 1e300, "infinite": float("-inf"), "flag": True,
    "text": ODD, "nothing": None, "stored": bytes(range(256)), "ints": (1, -2), "none": (), "list": [1, [2.5, "x"], []],
    "mixed": (True, b"\x01", None, 0.1), "single": np.float32(0.1), "type": np.dtype(ml_dtypes.int4),
    "add": AddConstants(1, 2, 3, 4), "odd key": 1, "entries": {"a": 1, "b": [2]},
    "places": Places(first=(0,), second=(1,), shares=(3,), one=4),
}  # fmt: skip
ARRAYS = [
    np.array([[1.5, np.nan], [-0.0, np.inf]], np.float32), np.array(7, np.int64), np.zeros((2, 0), np.int8),
    np.array([True, False, True]), np.array([-8, 7, 1], ml_dtypes.int4), np.array([0, 3], ml_dtypes.uint2),
    np.array([5, 5, 5], np.uint64), np.array([1, 2], ml_dtypes.bfloat16), np.array([0.5], ml_dtypes.float8_e4m3fn),
    np.arange(6, dtype=np.uint16).reshape(2, 3).T,
]  # fmt: skip


def odd_graph() -> Graph:
    """A graph with every kind of attribute and constant, and all that a graph has beside its nodes."""
    graph = Graph(ODD, 23)
    graph.add(Tensor(ODD, (1, 4), F32))
    graph.inputs = [ODD]
    names = [graph.constant("c", array, Quant.of([0.1, 0.2], [1, 2], 0)) for array in ARRAYS]
    made = graph.like(graph.tensor(ODD), "made")
    graph.add(Tensor("y", (1, 4), np.dtype(np.int8), None, Quant.of(np.float32(0.1), -3)))
    graph.nodes = [
        Node("Relu", [ODD], [made], {}, ODD, ("a", ODD)),
        Node("Invented", [made, "", *names], ["", "y"], VALUES | {"array": ARRAYS[0]}),
    ]
    graph.outputs = ["y", ODD, "y"]
    graph.states = [State("s", ODD, "y", np.ones(3, np.int8), "plain")]
    graph.limits, graph.metadata, graph.floats = {ODD: (-1, 5)}, {ODD: "v"}, {"n": ODD}
    graph.notes, graph.dropped = [ODD], DroppedChannels(1, 2, 3, 4, 5)
    return graph


def test_a_graph_is_read_as_it_was() -> None:
    graph = odd_graph()
    found = read_graph(graph_text(graph))
    for name in ("name", "opset", "inputs", "outputs", "limits", "metadata", "floats", "notes", "dropped", "serial"):
        assert getattr(found, name) == getattr(graph, name), name
    assert list(found.tensors) == list(graph.tensors)
    for name, tensor in graph.tensors.items():
        other = found.tensor(name)
        assert (other.shape, other.dtype) == (tensor.shape, tensor.dtype)
        assert other.quant is None if tensor.quant is None else tensor.quant.same_as(other.quant)
        assert found.is_invented(name) == graph.is_invented(name)
        if tensor.data is not None:
            assert other.data is not None and other.data.tobytes() == tensor.data.tobytes()
    relu, invented = found.nodes
    assert (relu.name, relu.origin, relu.attrs) == (ODD, ("a", ODD), {})
    assert (invented.inputs, invented.outputs) == (graph.nodes[1].inputs, ["", "y"])
    np.testing.assert_array_equal(invented.attrs.pop("array"), ARRAYS[0])
    assert invented.attrs == VALUES
    assert [type(v) for v in invented.attrs.values()] == [type(v) for v in VALUES.values()]
    (state,) = found.states
    assert (state.name, state.begin, state.end, state.plain) == ("s", ODD, "y", "plain")
    np.testing.assert_array_equal(state.initial, np.ones(3, np.int8))


def test_strings_have_no_type() -> None:
    graph = Graph()
    graph.constant("c", np.array(["a"], object))
    with pytest.raises(TilewrightError, match=r"tensor 'c.1': tensors of object have no type in MLIR"):
        graph_text(graph)


def test_names_of_quantised_ops_differ_in_more_than_case() -> None:
    assert len({name.lower() for name in QUANTIZED_OPS}) == len(QUANTIZED_OPS)


def _round_trip(graph: Callable[[], Graph], config: NpuConfig) -> None:
    """Writes, reads and compiles a graph, and every graph and tile program that its compilation prints."""
    printed: list[str] = []
    options = CompileOptions(print_after=("all",), print_form="mlir")
    text = graph_text(graph())
    plain = compile_graph(graph(), config, options, out=printed.append)
    again = compile_graph(read_graph(text), config)
    assert (again.instructions, again.constants) == (plain.instructions, plain.constants)
    assert again.content_hash() == plain.content_hash()
    graphs = {text.partition("\n")[2] for text in printed if "builtin.module" in text}
    assert graphs
    for found in graphs:
        assert graph_text(read_graph(found)) == found + "\n"
    (tiles,) = (text for text in printed if text.startswith("// after tiles\n"))
    module, _ = parse(tiles, ())
    module.verify()
    operations = [op.op_name.data for op in module.walk() if op.name == "builtin.unregistered"]
    assert {"tilewright.load", "tilewright.store"} < set(operations)
    comments = [text for text in printed if "builtin.module" not in text and text is not tiles]
    assert comments and all(line.startswith("//") for text in comments for line in text.splitlines())


@pytest.mark.parametrize("name", ["depthwise", "conv_add_table", "branches_meet", "product_of_activations"])
def test_every_graph_of_a_compilation_is_read_again(name: str) -> None:
    case = cases()[name]
    _round_trip(case.graph, case.config)


@pytest.mark.network
@pytest.mark.parametrize("name", [n if n == "ds_cnn" else pytest.param(n, marks=pytest.mark.long) for n in ZOO])
def test_networks_of_the_zoo(name: str) -> None:
    """`pytest -m long -k NETWORK` takes one; the parameters are those for quick tests."""
    model = build_quantized(name, calibration=2, **ZOO[name].small)
    sizes = {x.name: x.type.tensor_type.shape.dim for x in model.graph.input}
    shapes = {n: [d.dim_value or 1 for d in found] for n, found in sizes.items() if any(d.dim_param for d in found)}
    _round_trip(lambda: import_onnx(model, shapes), PRESETS["base"])


@pytest.mark.parametrize("seed", [2, 5, 11])
def test_random_programs(seed: int) -> None:
    text = graph_text(import_tosa(RandomProgram(seed).text(), "random"))
    assert graph_text(read_graph(text)) == text
    first = compile_graph(import_tosa(RandomProgram(seed).text(), "random"), PRESETS["base"])
    second = compile_graph(read_graph(text), PRESETS["base"])
    assert (second.instructions, second.constants) == (first.instructions, first.constants)
    assert second.content_hash() == first.content_hash()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tilewright.format = 1", "tilewright.format = 2", "tilewright.format 2; 1 is accepted"),
        ("onnx.Relu", "relu", "line 4: tilewright.relu is not of this dialect"),
        ("(tensor<1x4xf32>) -> (tensor<1x4xf32>)\n", "(tensor<1x4xf32>) -> (tensor<1x5xf32>)\n", "damaged MLIR text"),
        ('Relu"(%0) {', 'Flatten"(%0) {axis = 2, ', r"line 4: Flatten: its result 'y' is float32\[1, 4\]"),
        ('[{name = "y"}]', '[{name = "x"}]', "line 4: a tensor called 'x'; names are needed, each once"),
        ('[{name = "y"}]', "[]", "line 4: tilewright.onnx.Relu: 1 results, 0 names"),
        ('[{name = "y"}]', '[{name = "y", scale = 1 : i64, zero_point = 0}]', "line 4: .*attributes as the compiler"),
        ("tilewright.opset = 21, ", "", "'tilewright.opset'"),
        ('"main"', '"other"', "one func.func @main"),
        ('"x"', '"' + "x" * 99 + "\\z", "line 2, column [0-9]+: damaged MLIR text: a string without its end"),
        ("%1 = ", "%1 = = ", "line 4, column 10: damaged MLIR text"),
    ],
)
def test_damaged_text_is_refused_with_its_place(old: str, new: str, message: str) -> None:
    graph = Graph()
    graph.add(Tensor("x", (1, 4), F32))
    graph.add(Tensor("y", (1, 4), F32))
    graph.inputs, graph.outputs, graph.nodes = ["x"], ["y"], [Node("Relu", ["x"], ["y"])]
    text = graph_text(graph)
    assert text.count(old) >= 1
    with pytest.raises(TilewrightError, match=message) as error:
        read_graph(text.replace(old, new, 1))
    assert "\n" not in str(error.value)
