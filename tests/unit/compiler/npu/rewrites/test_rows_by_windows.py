"""Rows of tables by windows: what follows from a token or its position is looked up by nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference import quantized_ops as reference
from tilewright import zoo
from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.errors import TilewrightError
from tilewright.isa.config import PRESETS
from tilewright.isa.program import NpuStep, Program
from tilewright.zoo.llama import prompts

SIZES: dict[str, Any] = {"layers": 1, "width": 64, "heads": 2, "kv_heads": 2, "hidden": 64, "window": 16, "context": 40}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build_quantized("micro_llama", whole=True, **SIZES)


@pytest.fixture(scope="module")
def program(model: onnx.ModelProto) -> Program:
    return tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", cache=False)


def feeds(position: int, token: int) -> dict[str, np.ndarray]:
    return {"input_ids": np.array([[token]]), "position_ids": np.array([[position]])}


@pytest.mark.medium
def test_every_position_has_onnxruntimes_logits(model: onnx.ModelProto, program: Program) -> None:
    """Each row of RoPE's tables and of the mask, behind the end of the cache too, without an op on the CPU."""
    assert [type(step) for step in program.steps] == [NpuStep]
    device = tw.Device("functional")
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    for position in range(SIZES["context"]):
        given = feeds(position, (29 * position + 95) % 96)
        outputs = onnx_models.run(model, given | state)
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        found = device.run(program, given)["logits"]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, outputs["logits"])


@pytest.mark.medium
def test_the_mask_has_a_row_for_each_row_of_the_cache(program: Program) -> None:
    """Later positions see everything, so that they share the last row."""
    rows = {(w.tensor, w.period, w.rows) for w in program.windows if w.space == "constant"}
    assert rows == {("position_ids", 40, 40), ("position_ids", 40, 16), ("input_ids", 96, 96)}
    mask = next(w for w in program.windows if w.rows == 16)
    assert [mask.offset(value) // mask.stride for value in (0, 15, 16, 39)] == [0, 15, 15, 15]


@pytest.mark.medium
@pytest.mark.parametrize("position, token", [(-1, 0), (40, 0), (0, -1), (0, 96)])
def test_numbers_that_are_no_rows(program: Program, position: int, token: int) -> None:
    with pytest.raises(TilewrightError, match=r"0\.\.(39|95)|0 to (39|95)"):
        tw.Device("functional").run(program, feeds(position, token))


@pytest.mark.medium
def test_schedules_that_are_measured(model: onnx.ModelProto, program: Program) -> None:
    """Effort 2 measures windows without values; the result is the same."""
    tuned = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", effort=2, cache=False)
    devices = [tw.Device("cycle"), tw.Device("cycle")]
    found = [d.run(p, feeds(3, 7))["logits"] for d, p in zip(devices, (program, tuned), strict=True)]
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.medium
@pytest.mark.parametrize("value", [0, 3, 4, 9])
def test_the_cpu_reads_rows_too(value: int) -> None:
    """The last row stands for all values behind it."""
    graph, random = Graph("row"), np.random.default_rng(3)
    quant = Quant.of(np.float32(0.5), 3)
    graph.add(Tensor("value", (1, 1), np.dtype(np.int64)))
    graph.inputs.append("value")
    table = graph.constant("table", random.integers(-128, 128, (5, 1, 2, 20)).astype(np.int8), quant)
    graph.add(Tensor("y", (1, 2, 20), np.dtype(np.int8), quant=quant))
    graph.nodes.append(Node.of(QRow(region=4, period=10), [table, "value"], ["y"], "row"))
    graph.outputs.append("y")
    given = {"value": np.array([[value]])}
    expected = reference.run(graph, given)["y"]
    program = compile_graph(graph, PRESETS["base"], CompileOptions(cpu_only=True))
    np.testing.assert_array_equal(tw.Device("functional").run(program, given)["y"], expected)


def test_rows_that_do_not_fit() -> None:
    """Tables whose rows are no such result, and have more rows than there are values."""
    quant = Quant.of(np.float32(0.5), 3)
    table = Tensor("table", (5, 1, 16), np.dtype(np.int8), np.zeros((5, 1, 16), np.int8), quant)
    value, y = Tensor("value", (1,), np.dtype(np.int64)), Tensor("y", (1, 16), np.dtype(np.int8), quant=quant)
    assert QRow(region=4, period=5).check([table, value], y) is None
    assert "a row [1, 16] of 4" in (QRow(region=4, period=4).check([table, value], y) or "")
    other = Tensor("y", (1, 16), np.dtype(np.int8), quant=Quant.of(np.float32(0.5), 4))
    assert "another type or quantisation" in (QRow(region=4, period=5).check([table, value], other) or "")
