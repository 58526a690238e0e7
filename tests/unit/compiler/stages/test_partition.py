"""The whole of placing: layers that fit no tiling, tensors that are kept, names that say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Node, Quant
from tilewright.compiler.npu.blocks.tasks import describe
from tilewright.compiler.npu.place.tails import Chain
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.compiler.stages.exactness import inexact_tensors
from tilewright.compiler.stages.order import LayerStep, order_steps
from tilewright.compiler.stages.partition import partition
from tilewright.isa.config import PRESETS

TINY = PRESETS["tiny"]


def test_what_fits_no_tiling_goes_to_the_cpu() -> None:
    net = Net()
    small = net.conv(net.plane(4, 4), 4)
    large = net.conv(net.plane(4, 4), 4, kernel=5)
    cramped = TINY.with_(name="cramped", wgt_tiles=16)
    found = partition(net.done(small, large), cramped, CompileOptions())
    assert found.placement.npu == {small}
    assert found.placement.reasons[large].startswith("does not fit the scratchpads of 'cramped': ")
    assert any(task.op == "QConv" for task in found.tasks if isinstance(task, Node))


def test_all_kept() -> None:
    """Nothing joins anything, and every tensor has a buffer of its own."""
    net = Net()
    y = net.table(net.conv(net.plane(4, 4), 4))
    graph = net.done(y)
    options = CompileOptions(keep="all")
    found = partition(graph, TINY, options)
    assert [len(piece.nodes) for piece in found.work if isinstance(piece, Chain)] == [1, 1]
    steps = order_steps(graph, found, options)
    assert [isinstance(step, LayerStep) for step in steps] == [False, True, False]


def test_cpu_only() -> None:
    net = Net()
    y = net.table(net.conv(net.plane(4, 4), 4))
    found = partition(net.done(y), TINY, CompileOptions(cpu_only=True))
    assert not found.buffers and [describe(task).split(" = ")[0] for task in found.tasks] == ["QConv.0", "QLut.1"]


def test_names_with_an_at_sign_are_tensors_like_others() -> None:
    """Buffers of conversions have names with @ in them; a model may use such names, too."""
    net = Net()
    net.conv(net.plane(4, 4), 4)
    net.graph.nodes[0].outputs = ["y@c1"]
    net.tensor("y@c1", (1, 4, 4, 4), "int8")
    program = compile_graph(net.done("y@c1"), TINY, CompileOptions(keep="all"))
    assert [(info.name, info.buffer) for info in program.tensors] == [("x0", "x0"), ("y@c1", "y@c1@c1")]
    assert program.keep_all


def test_softmax_between_products_may_be_off_by_a_step() -> None:
    """One that the NPU's nodes read runs there, and says why its results may differ; others stay on the CPU."""
    config = PRESETS["base"]
    net = Net()
    inner = net.finish(
        "QSoftmax", [net.product(net.input((9, 20), np.int8), 30)], (9, 30), np.int8,
        quant=Quant.of(np.float32(1 / 255), -128), levels=254.0,
    )  # fmt: skip
    last = net.softmax(net.product(inner, 7))
    graph = net.done(last)
    found = partition(graph, config, CompileOptions())
    assert inner in found.placement.npu
    assert found.placement.reasons.keys() == {last}
    assert "float32" in inexact_tensors(graph)[inner] and last not in inexact_tensors(graph)
    without = partition(net.done(last), config.with_(row_unit=0), CompileOptions())
    assert without.placement.reasons[inner] == "the machine has no row unit"


@pytest.mark.parametrize(
    ("shape", "levels", "axis", "reason"),
    [
        ((3, 4096), 254.0, -1, None),
        ((3, 4097), 254.0, -1, "rows of 4097 elements; up to 4096"),
        ((4, 4), 254.0, 0, "axis 0 of 2; rows of the NPU are the last axis"),
        ((4, 4), 0.0, -1, "probabilities times 0; the NPU's factor is above 0 and has up to 18 bits"),
        ((4, 4), 1 / 3, -1, "probabilities times 0.333333; the NPU's factor is above 0 and has up to 18 bits"),
    ],
)
def test_softmax_the_row_unit_cannot_do(shape: tuple[int, int], levels: float, axis: int, reason: str | None) -> None:
    net = Net()
    quant = Quant.of(np.float32(1 / 255), -128)
    y = net.finish("QSoftmax", [net.input(shape, np.int8)], shape, np.int8, quant=quant, levels=levels, axis=axis)
    placement = partition(net.done(net.product(y, 3)), PRESETS["base"], CompileOptions()).placement
    assert placement.reasons.get(y) == reason


@pytest.mark.parametrize(("zero", "reason"), [(0, None), (3, "LiteRT does not add the zero point 3 of uint8 results")])
def test_softmax_of_uint8_as_litert_has_it(zero: int, reason: str | None) -> None:
    net = Net()
    quant = Quant.of(np.float32(1 / 256), zero)
    y = net.finish("QSoftmax", [net.input((4, 4), np.uint8)], (4, 4), np.uint8, quant=quant)
    placement = partition(net.done(net.product(y, 3)), PRESETS["base"], CompileOptions()).placement
    assert placement.reasons.get(y) == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"row_unit": 0}, "the machine has no row unit"),
        ({"count": 4097}, "4097 elements have one mean; up to 4096"),
        ({"bias": 6.0}, "a bias is 203 steps from the middle of the results; the NPU adds up to 128"),
        ({"scale": 1e30}, "a scale of a channel is no ordinary float32 number on the NPU"),
        ({"count": 2, "epsilon": 1e-4}, None),
        ({"epsilon": 1e9}, "epsilon 1e+09 is 1.6e+14 at this scale; the NPU adds 0 to 2**31 - 1"),
    ],
)
def test_norms_the_row_unit_cannot_do(change: dict[str, float], reason: str | None) -> None:
    net = Net()
    n = int(change.get("count", 20))
    x = net.input((9, n), np.int8)
    row = [net.graph.constant(k, np.full(n, change.get(k, 0.5), np.float32)) for k in ("scale", "bias")]
    quant, epsilon = Quant.of(np.float32(0.03), 3), change.get("epsilon", 1e-5)
    y = net.finish("QNorm", [x, *row], (9, n), np.int8, quant=quant, epsilon=epsilon)
    graph = net.done(net.product(y, 3))
    config = PRESETS["base"].with_(row_unit=int(change.get("row_unit", 1)))
    assert partition(graph, config, CompileOptions()).placement.reasons.get(y) == reason
    assert ("float32" in inexact_tensors(graph).get(y, "")) == (reason is None)


def test_softmax_that_only_the_cpu_reads() -> None:
    net = Net()
    y = net.product(net.input((9, 20), np.int8), 30)
    quant = Quant.of(np.float32(1 / 255), -128)
    z = net.finish("QSoftmax", [y], (9, 30), np.int8, quant=quant, levels=254.0)
    placement = partition(net.done(z), PRESETS["base"], CompileOptions()).placement
    assert placement.reasons == {z: "no node of the NPU reads its result"}
