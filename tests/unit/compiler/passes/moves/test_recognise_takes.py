"""Recognition of movement as QTake, and the indices it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.npu.layers.take import Run, runs
from tilewright.compiler.passes.moves.recognise_takes import recognise_takes


def resized(size: tuple[int, int], out: tuple[int, int], **attrs: Any) -> Graph:
    net = Net()
    x = net.input((1, 4, *size), np.int8)
    sizes = net.graph.constant("sizes", np.array([1, 4, *out], np.int64))
    y = net.move("Resize", [x, "", "", sizes], (1, 4, *out), {"mode": "nearest", **attrs})
    graph = net.done(y)
    recognise_takes(graph)
    graph.verify("recognise_takes")
    return graph


def test_nearest() -> None:
    graph = resized((2, 3), (4, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    assert graph.nodes[0].quantized == QTake(indices=(None, None, (0, 0, 1, 1), None))


@pytest.mark.parametrize("attrs", [{"mode": "linear"}, {"coordinate_transformation_mode": "tf_crop_and_resize"}])
def test_what_is_no_choice_of_places(attrs: dict[str, str]) -> None:
    assert [n.op for n in resized((2, 3), (4, 3), **attrs)] == ["Resize"]


@pytest.mark.parametrize(("scale", "op"), [(1.2, "Resize"), (1.0, "QTake")])
def test_an_axis_that_keeps_its_length_may_be_interpolated(scale: float, op: str) -> None:
    net = Net()
    x = net.input((1, 4, 3, 1), np.int8)
    scales = net.graph.constant("scales", np.array([1, 1, scale, 4], np.float32))
    graph = net.done(net.move("Resize", [x, "", scales], (1, 4, 3, 4), {"mode": "linear"}))
    recognise_takes(graph)
    assert [n.op for n in graph] == [op]


@pytest.mark.parametrize(("steps", "op"), [([2, 1], "QTake"), ([1, 1], "Slice")])
def test_slices(steps: list[int], op: str) -> None:
    net = Net()
    x = net.input((1, 4, 5, 6), np.int8)
    bounds = [net.graph.constant("c", np.array(v, np.int64)) for v in ([1, 2], [5, 6], [2, 3], steps)]
    graph = net.done(net.move("Slice", [x, *bounds], (1, 4, len(range(1, 5, steps[0])), 4), {}))
    recognise_takes(graph)
    graph.verify("recognise_takes")
    assert [n.op for n in graph] == [op]
    if op == "QTake":
        assert graph.nodes[0].quantized == QTake(indices=(None, None, (1, 3), (2, 3, 4, 5)))


@pytest.mark.parametrize(
    ("mode", "pads", "indices"),
    [
        ("reflect", [0, 0, 2, 0, 0, 0, 1, 0], (None, None, (2, 1, 0, 1, 2, 1), None)),
        ("edge", [0, 0, 0, 1, 0, 0, 0, 3], (None, None, None, (0, 0, 1, 1, 1, 1))),
        ("reflect", [0, 0, 3, 0, 0, 0, 0, 0], (None, None, (1, 2, 1, 0, 1, 2), None)),
        ("edge", [0, 0, -1, 0, 0, 0, 1, 0], (None, None, (1, 2, 2), None)),
        ("wrap", [0, 0, 1, 0, 0, 0, 0, 0], (None, None, (2, 0, 1, 2), None)),
        ("constant", [0, 0, 1, 0, 0, 0, 1, 0], None),
    ],
)
def test_pads(mode: str, pads: list[int], indices: tuple[tuple[int, ...] | None, ...] | None) -> None:
    net = Net()
    x, shape = net.input((1, 4, 3, 2), np.int8), np.add([1, 4, 3, 2], np.add(pads[:4], pads[4:]))
    constants = [net.graph.constant("c", np.array(v)) for v in (np.int64(pads), np.int8(3))]
    graph = net.done(net.move("Pad", [x, *constants], tuple(int(n) for n in shape), {"mode": mode}))
    recognise_takes(graph)
    graph.verify("recognise_takes")
    assert graph.nodes[0].quantized == (None if indices is None else QTake(indices=indices))


def test_slice_from_the_end() -> None:
    """Reversed, with bounds that count from the end."""
    net = Net()
    x = net.input((1, 4, 5, 6), np.int8)
    bounds = [net.graph.constant("c", np.array([v], np.int64)) for v in (-1, -7, 3, -1)]
    graph = net.done(net.move("Slice", [x, *bounds], (1, 4, 5, 6), {}))
    recognise_takes(graph)
    assert graph.nodes[0].quantized == QTake(indices=(None, None, None, (5, 4, 3, 2, 1, 0)))


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ((0, 0, 1, 1, 2, 2), [Run(0, 0, 3, 2, 1)]),
        ((0, 2, 4), [Run(0, 0, 3, 1, 2)]),
        ((5, 4, 3), [Run(0, 5, 3, 1, -1)]),
        ((0, 0, 1, 2, 2, 3), [Run(0, 0, 1, 2, 1), Run(2, 1, 1, 1, 1), Run(3, 2, 1, 2, 1), Run(5, 3, 1, 1, 1)]),
        ((7,), [Run(0, 7, 1, 1, 1)]),
    ],
)
def test_runs(places: tuple[int, ...], found: list[Run]) -> None:
    assert list(runs(places)) == found
