"""Layers by ROW in many tiles, with more rows than ACT and PRM hold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.network.layer_cases.case import lut
from tests.reference import quantized_ops
from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Graph, Quant
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import preset
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

#: A machine whose PRM has 16 rows, of which a softmax takes 12.
FEW = preset("base").with_(name="few rows", prm_rows=16, act_rows=512)


def equal(graph: Graph, layer: str) -> bool:
    """Returns True if the NPU gives the reference's bytes; fails if the NPU does not run that layer."""
    inputs = {graph.inputs[0]: np.random.default_rng(1).integers(-128, 128, graph.tensor(graph.inputs[0]).shape)}
    inputs = {name: x.astype(np.int8) for name, x in inputs.items()}
    program = compile_graph(graph, FEW)
    assert "npu" in [row.where for row in program.layers if layer in row.op], program.layers
    found, wanted = Executor(program, FunctionalDevice(FEW)).run(inputs).outputs, quantized_ops.run(graph, inputs)
    return all(np.array_equal(found[name], wanted[name]) for name in graph.outputs)


@pytest.mark.medium
@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(("rows", "elements"), [(12, 20), (13, 20), (75, 40), (40, 16), (70, 700)])
def test_softmax(rows: int, elements: int, table: bool) -> None:
    net = Net()
    scores = net.product(net.input((rows, 24), np.int8), net.weights((24, elements), 1, 1))
    levels = Quant.of(np.float32(1 / 255), -128)
    y = net.finish("QSoftmax", [scores], (rows, elements), np.int8, quant=levels, axis=-1, levels=255.0)
    y = lut(net, y) if table else y
    assert equal(net.done(y, net.product(y, 8)), "QSoftmax")


@pytest.mark.medium
@pytest.mark.parametrize(("groups", "group_size", "size"), [(300, 1, (5, 6)), (9, 4, (8, 8)), (20, 8, (4, 8))])
def test_norm_of_planes(groups: int, group_size: int, size: tuple[int, int]) -> None:
    net, rng = Net(), np.random.default_rng(2)
    channels = groups * group_size
    x = net.conv(net.input((2, 8, *size), np.int8), channels)
    scale, bias = (net.graph.constant("c", rng.normal(*p, channels).astype(np.float32)) for p in ((1, 0.5), (0, 0.3)))
    y = net.finish("QPlaneNorm", [x, scale, bias], (2, channels, *size), np.int8,
                   quant=Quant.of(np.float32(0.03), 5), groups=groups, epsilon=1e-6)  # fmt: skip
    assert equal(net.done(net.conv(y, 8)), "QPlaneNorm")


@pytest.mark.parametrize(("rows", "elements"), [(75, 40), (40, 300)])
def test_norm_of_rows(rows: int, elements: int) -> None:
    net, rng = Net(), np.random.default_rng(2)
    x = net.product(net.input((rows, 24), np.int8), net.weights((24, elements), 1, 1))
    scale, bias = (net.graph.constant("c", rng.normal(*p, elements).astype(np.float32)) for p in ((1, 0.5), (0, 0.3)))
    y = net.finish("QNorm", [x, scale, bias], (rows, elements), np.int8, quant=Quant.of(np.float32(0.03), 5),
                   epsilon=1e-6)  # fmt: skip
    assert equal(net.done(net.product(y, 8)), "QNorm")
