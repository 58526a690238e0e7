"""Rows that nothing reads are not computed: the same results of smaller products."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.reference import quantized_ops
from tests.unit.compiler.npu.net import Net
from tilewright import zoo
from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.compiler.passes.fold.drop_rows import drop_rows, same_axes
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep, NpuStep
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

TOKENS, HEADS, DEPTH = 20, 2, 16
WIDTH = HEADS * DEPTH


class Random(Net):
    """Products with random weights, whose results do not saturate."""

    def product(self, a: str, columns: int | str) -> str:
        if isinstance(columns, str):
            return super().product(a, columns)
        shape = self.graph.tensor(a).shape[-1], columns
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return super().product(a, self.graph.constant("w", data, Quant.of(np.float32(0.0025), 0)))

    def softmax(self, x: str) -> str:
        return self.finish("QSoftmax", [x], self.graph.tensor(x).shape, np.int8, levels=20.0)


def block(net: Net, x: str) -> str:
    """Attention and a product behind it, each with its shortcut."""
    rows = net.reshape(x, TOKENS, WIDTH)
    heads = [net.reshape(net.product(rows, WIDTH), 1, TOKENS, HEADS, DEPTH) for _ in range(3)]
    queries, values = (net.transpose(part, 0, 2, 1, 3) for part in heads[:2])
    scores = net.product(queries, net.transpose(heads[2], 0, 2, 3, 1))
    mixed = net.transpose(net.product(net.softmax(scores), values), 0, 2, 1, 3)
    x = net.add(net.reshape(net.product(net.reshape(mixed, TOKENS, WIDTH), WIDTH), 1, TOKENS, WIDTH), x)
    deep = net.table(net.product(x, 3 * WIDTH))
    return net.add(net.product(deep, WIDTH), x)


def taken(net: Net, x: str, op: str, *places: int) -> str:
    """Rows of [1, tokens, channels], by a Gather of one place or of some, or a Slice."""
    ints = lambda *values: net.graph.constant("i", np.array(values, np.int64))
    if op == "Slice":
        first, end = places
        inputs = [x, ints(first), ints(end), ints(1), ints(1)]
        return net.move("Slice", inputs, (1, len(range(TOKENS)[first:end]), WIDTH), {})
    if len(places) == 1:
        index = net.graph.constant("i", np.array(places[0], np.int64))
        return net.move("Gather", [x, index], (1, WIDTH), {"axis": 1})
    return net.move("Gather", [x, ints(*places)], (1, len(places), WIDTH), {"axis": 1})


def results(graph: Graph, x: np.ndarray) -> list[np.ndarray]:
    found = quantized_ops.run(graph, {graph.inputs[0]: x})
    return [found[name] for name in graph.outputs]


def products(graph: Graph) -> list[int]:
    """Rows of every product."""
    return [graph.tensor(node.outputs[0]).shape[-2] for node in graph if node.op == "QMatMul"]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    ("op", "places"),
    [
        ("Gather", (0,)),
        ("Gather", (-3,)),
        ("Gather", (4, 2)),
        ("Gather", (5, 4)),
        ("Gather", (3, 4)),
        ("Gather", (3, 1, 1)),
        ("Slice", (1, 7)),
        ("Slice", (-4, -1)),
    ],
)
def test_the_last_block_makes_the_rows_that_are_read(op: str, places: tuple[int, ...], outputs: int) -> None:
    """The last block computes only the rows that are read, but for keys and values; all rows where something else reads
    them."""
    net = Random()
    x = net.input((1, TOKENS, WIDTH), np.int8)
    y = block(net, block(net, x))
    ends = [net.product(taken(net, y, op, *places), 8)]
    if outputs == 2:
        ends.append(taken(net, y, "Slice", 0, 2))
    graph = net.done(*ends)
    values = np.random.default_rng(1).integers(-128, 128, (1, TOKENS, WIDTH)).astype(np.int8)
    before, expected = copy.deepcopy(graph), results(graph, values)
    drop_rows(graph)
    graph.verify("drop_rows")
    read = {range(TOKENS)[p] for p in places} if op == "Gather" else set(range(TOKENS)[places[0] : places[1]])
    read |= {0, 1} if outputs == 2 else set()
    rows = max(read) + 1 - min(read)
    narrow = rows if 2 * rows <= TOKENS else TOKENS
    last = [narrow, TOKENS, TOKENS, narrow, narrow, narrow, narrow, narrow]
    assert products(graph)[8:-1] == last and products(graph)[:8] == products(before)[:8] == [TOKENS] * 8
    got = results(graph, values)
    assert all(np.array_equal(a, b) and len(np.unique(a)) > 3 for a, b in zip(got, expected, strict=True))
    assert graph.outputs == before.outputs


def test_a_row_of_attention_stays_on_the_npu() -> None:
    """The machine makes weights of keys and values, so that a single row of queries costs no CPU anything."""
    net = Random()
    y = block(net, net.product(net.input((1, TOKENS, WIDTH), np.int8), WIDTH))
    graph = net.done(net.product(taken(net, y, "Gather", 0), 8))
    values = np.random.default_rng(2).integers(-128, 128, (1, TOKENS, WIDTH)).astype(np.int8)
    expected = results(graph, values)
    drop_rows(graph)
    program = compile_graph(graph, PRESETS["base"], CompileOptions())
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1
    on_cpu = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
    assert set(on_cpu) == {"Relayout"}
    outcome = Executor(program, FunctionalDevice(PRESETS["base"])).run({graph.inputs[0]: values})
    assert np.array_equal(outcome.outputs[graph.outputs[0]], expected[0])


def test_only_this_pass_must_not_run_twice() -> None:
    """A sweep keeps a graph that all others have run on; what this one leaves, they would change."""
    assert FRONTEND[-1].run is drop_rows
    graph = import_onnx(zoo.build_quantized("deit", size=32, patch=8, width=48, layers=1))
    run_passes(graph, FRONTEND[:-1])
    before = [(n.op, graph.tensor(n.outputs[0]).shape) for n in graph]
    run_passes(graph, FRONTEND[:-1])
    assert [(n.op, graph.tensor(n.outputs[0]).shape) for n in graph] == before
    drop_rows(graph)
    assert [(n.op, graph.tensor(n.outputs[0]).shape) for n in graph] != before


def test_elementwise_ops_alone_are_left() -> None:
    """No product becomes smaller: the graph stays as it is."""
    net = Random()
    x = net.input((1, TOKENS, WIDTH), np.int8)
    y = net.product(net.table(net.table(x)), WIDTH)
    graph = net.done(y, net.table(taken(net, net.table(net.add(y, x)), "Gather", 0)))
    nodes: list[Node] = list(graph.nodes)
    drop_rows(graph)
    assert graph.nodes == nodes


def test_constants_that_others_read_stay_as_they_are() -> None:
    """Two Slices with the same bounds, one of rows that are dropped, one of another tensor."""
    net = Random()
    x, z = net.input((1, TOKENS, WIDTH), np.int8), net.input((1, TOKENS, WIDTH), np.int8)
    bounds = [net.graph.constant("i", np.array([v], np.int64)) for v in (10, 12, 1, 1)]
    y = net.product(x, WIDTH)
    first, second = (net.move("Slice", [name, *bounds], (1, 2, WIDTH), {}) for name in (y, net.table(z)))
    third = taken(net, y, "Slice", 18, 20)
    graph = net.done(first, second, third)
    feeds = {name: np.random.default_rng(2).integers(-128, 128, (1, TOKENS, WIDTH)).astype(np.int8) for name in (x, z)}
    expected = quantized_ops.run(copy.deepcopy(graph), feeds)
    drop_rows(graph)
    assert [int(graph.const(name)[0]) for name in bounds] == [10, 12, 1, 1]
    found = quantized_ops.run(graph, feeds)
    assert all(np.array_equal(found[name], expected[name]) for name in graph.outputs)


def test_axes_of_tensors_without_elements() -> None:
    assert list(same_axes((0, 3), (3, 0))) == list(same_axes((2, 0, 3), (0, 6))) == []
    assert list(same_axes((2, 3, 1, 4), (6, 4))) == [(3, 1)]
