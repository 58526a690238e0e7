"""The compiled graph in Netron and Model Explorer has all layers, their edges and all cycles of the run."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx.helper import get_attribute_value

import tilewright as tw
from tests.common.quantized_chain import quantized_chain
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.cli import cli
from tilewright.measure.demo import DIGITS
from tilewright.measure.explain import Explanation
from tilewright.measure.graph_view import GraphView, graph_view

MODEL = DIGITS / "digits_int8.onnx"


@pytest.fixture(scope="module")
def explained() -> Explanation:
    return tw.explain(tw.compile_program(MODEL))


@pytest.fixture(scope="module")
def view(explained: Explanation) -> GraphView:
    return graph_view(explained, ModelSource(MODEL), ProgramOptions().compiler)


def facts(node: onnx.NodeProto) -> dict[str, object]:
    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}


def test_every_layer_is_a_node(view: GraphView, explained: Explanation) -> None:
    """Nodes are the layers of the program in its order, and Reshapes, which move nothing."""
    model = view.to_onnx()
    onnx.checker.check_model(model)
    nodes = [node for node in model.graph.node if facts(node)["place"] != b"view"]
    assert [node.name for node in nodes] == [layer.name for layer in explained.program.layers]
    assert [facts(node)["place"].lower().decode() for node in nodes] == [l.where for l in explained.program.layers]  # type: ignore[attr-defined]
    assert sum(facts(node).get("cycles", 0) for node in nodes) == explained.cycles  # type: ignore[misc]
    assert sum(facts(node).get("share", 0) for node in nodes) == pytest.approx(1, abs=1e-3)  # type: ignore[misc]
    by_name = {node.name: facts(node) for node in nodes}
    fused = [row for row in explained.rows if row.layer.name not in by_name]  # several layers, a row of the report
    assert 0 < len(fused) < len(explained.rows)
    own = {row.layer.name for row in explained.rows}
    assert sum(row.cycles for row in fused) == sum(f.get("cycles", 0) for name, f in by_name.items() if name not in own)  # type: ignore[misc]
    for row in explained.rows:
        if row in fused:
            continue
        found = by_name[row.layer.name]
        assert (found["cycles"], found["bound_cycles"], found["macs"]) == (row.cycles, row.bound, row.layer.macs)
        assert (found["read_bytes"], found["write_bytes"]) == (row.layer.read_bytes, row.layer.write_bytes)
        losses = {k.removeprefix("lost_to_"): v for k, v in found.items() if k.startswith("lost_to_")}
        assert losses == {cause: cycles for cause, cycles in row.losses.items() if cycles > 0}
    assert 0.5 < by_name["conv_1"]["busy_GEMM"] <= 1.01  # type: ignore[operator]
    assert {p.key: p.value for p in model.metadata_props}["cycles"] == str(explained.cycles)
    assert {p.key for p in nodes[1].metadata_props} == set(by_name[nodes[1].name])


def test_edges_are_those_of_the_model(view: GraphView) -> None:
    """A residual connection joins two layers; constants are left out; every input is made by a node or given."""
    model = view.to_onnx()
    made = {name: node.name for node in model.graph.node for name in node.output}
    given = {value.name for value in model.graph.input}
    for node in model.graph.node:
        assert node.input and set(node.input) <= {*made, *given}
    (joined,) = (node for node in model.graph.node if node.name == "conv_2 + add_0")
    assert [made[name] for name in joined.input] == ["conv_1", "conv_0"]
    assert [value.name for value in model.graph.output] == ["output"] and made["output"] == "output_DequantizeLinear"


def test_node_data(view: GraphView, explained: Explanation) -> None:
    """Cycles are named by tensors of the model, which Model Explorer finds in it."""
    found = json.loads(view.node_data())["main"]
    tensors = {name for node in onnx.load(MODEL).graph.node for name in node.output}
    assert set(found["results"]) <= tensors
    assert sum(result["value"] for result in found["results"].values()) == explained.cycles
    assert [item["stop"] for item in found["gradient"]] == [0, 0.3, 1]


def test_command(tmp_path: Path) -> None:
    model, program = tmp_path / "net.onnx", tmp_path / "net.twp"
    onnx.save(quantized_chain(tail="Softmax"), model)

    def run(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(cli, [*map(str, arguments)])
        assert result.exit_code == code, result.output
        return result.output

    run("explain", model, "--onnx", tmp_path / "view.onnx", "--model-explorer", tmp_path / "view.json", "--json", "-")
    assert onnx.load(tmp_path / "view.onnx").graph.name == "net" and (tmp_path / "view.json").exists()
    run("compile", model, "-o", program)
    told = run("explain", program, "--onnx", tmp_path / "other.onnx", code=2)
    assert "net.twp is compiled already: --onnx needs a model and one computation" in told
    assert "no such directory" in run("explain", model, "--onnx", tmp_path / "none" / "a.onnx", code=2)
    assert not (tmp_path / "other.onnx").exists()
