"""Which rows each layer of a fused group makes per band, and what its neighbours find of them."""

from __future__ import annotations

from dataclasses import replace

from compiler.npu.layers.layer import Layer, Post, readers
from compiler.npu.layers.pooling import MaxPoolLayer, MeanLayer
from compiler.npu.schedule.bands import LayerGroup, band_ranges, group_of
from compiler.npu.views import View, dense_view
from isa.program import ARENA_REGION


def planes(name: str, height: int, width: int = 8) -> View:
    return dense_view(name, name, ARENA_REGION, (1, 4, height, width), 4)


def pool(x: View, y: View, **window: tuple[int, int]) -> MaxPoolLayer:
    return MaxPoolLayer(y.buffer, "QMaxPool", [x], y, Post(), **window)  # type: ignore[arg-type]


def group(layers: list[Layer], outside: tuple[str, ...] = ("y",)) -> LayerGroup | None:
    return group_of(layers, 0, len(layers), readers(layers), set(outside))


def test_a_halo_is_made_once() -> None:
    """A 3x3 below: the first band makes a row more than it gives, and every later band finds two rows."""
    x, m, y = planes("x", 8), planes("m", 8), planes("y", 8)
    found = group([pool(x, m), pool(m, y, kernel=(3, 3), pad=(1, 1))])
    assert found is not None and (found.between[0].left, found.between[0].right, found.between[0].fill) == (1, 1, -128)
    bands = band_ranges(replace(found, step=3))
    assert [b.made for b in bands] == [((0, 4), (0, 3)), ((4, 7), (3, 6)), ((7, 8), (6, 8))]
    assert [b.window[0] for b in bands] == [(-1, 4), (2, 7), (5, 9)]


def test_rows_that_a_stride_leaves_out_are_not_made() -> None:
    x, m, y = planes("x", 9), planes("m", 9), planes("y", 3)
    found = group([pool(x, m), pool(m, y, stride=(3, 1))])
    assert found is not None
    assert [b.made[0] for b in band_ranges(replace(found, step=1))] == [(0, 1), (3, 4), (6, 7)]


def test_whole_images_are_bands_where_there_are_several() -> None:
    one, four = planes("y", 8), replace(planes("y", 8), n=4)
    assert LayerGroup((pool(one, one),)).steps((3, 8, 9)) == [3]
    assert LayerGroup((pool(four, four),)).steps((3, 8, 9)) == [3, 8]


def test_what_others_read_stays_outside() -> None:
    x, m, y = planes("x", 8), planes("m", 8), planes("y", 8)
    layers: list[Layer] = [pool(x, m), pool(m, y)]
    assert group(layers) is not None
    assert group(layers, ("m", "y")) is None


def test_planes_of_one_row_are_not_fused() -> None:
    x, m, y = planes("x", 8), planes("m", 8), planes("y", 1, 1)
    assert group([pool(x, m), MeanLayer("y", "QGlobalAveragePool", [m], y, Post())]) is None
