"""Residency: the tensors that may stay in ACT, and their places."""

from __future__ import annotations

import itertools

import numpy as np
from msgspec.structs import replace

from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer
from tilewright.compiler.npu.schedule.residency import Stay, choose_residents, place_residents, resident_candidates
from tilewright.compiler.npu.views import View, dense_view
from tilewright.isa.config import PRESETS
from tilewright.isa.program import ARENA_REGION


def planes(name: str) -> View:
    return dense_view(name, name, ARENA_REGION, (1, 8, 6, 6), 4)


def table(x: View, y: View) -> Layer:
    return ElementLayer(y.buffer, "QLut", [x], y, Post())


def pool(x: View, y: View) -> Layer:
    return MaxPoolLayer(y.buffer, "QMaxPool", [x], y, Post(), kernel=(3, 3), pad=(1, 1))


def conv(x: View, y: View, fill: int) -> Layer:
    weights = np.zeros((1, 8, 8, 5, 1), np.int8)
    return ConvLayer(y.buffer, "QConv", [x], y, Post(), phases=[Phase(weights, (2, 0))], fill=fill)


X, M, Y, Z = (planes(name) for name in "xmyz")


def test_border_is_what_all_readers_want() -> None:
    (stay,) = resident_candidates([table(X, M), pool(M, Y), conv(M, Z, fill=-128)], {"y", "z"})
    assert (stay.view, stay.border, stay.fill) == (M, Border(2, 2, 1, 1), -128)
    assert stay.rows == 2 * (6 + 4) * (6 + 2)
    assert (stay.first, stay.last) == (0, 2)


def test_readers_that_pad_with_different_values() -> None:
    assert resident_candidates([table(X, M), pool(M, Y), conv(M, Z, fill=3)], {"y", "z"}) == []


def test_what_others_read_goes_to_memory() -> None:
    assert resident_candidates([table(X, M), table(M, Y)], {"m", "y"}) == []


def test_what_two_layers_write_whole_goes_to_memory() -> None:
    assert resident_candidates([table(X, M), table(Z, M), table(M, Y)], {"y"}) == []


#: The two channel blocks of M, and both as images.
HALVES = [replace(M, c=4, offset=block * M.sc) for block in range(2)]
IMAGES = replace(M, n=2, c=4, sn=M.sc)


def test_what_two_layers_write_half_each_stays() -> None:
    (stay,) = resident_candidates([table(X, HALVES[0]), table(Z, HALVES[1]), table(M, Y)], {"y"})
    assert (stay.view, stay.rows, stay.first, stay.last) == (M, 2 * 6 * 6, 0, 2)


def test_half_of_what_is_read_is_not_written() -> None:
    assert resident_candidates([table(X, HALVES[0]), table(M, Y)], {"y"}) == []


def test_readers_with_other_axes() -> None:
    """Blocks of channels that are read as images stay in ACT; a border around the planes of one view does not."""
    (stay,) = resident_candidates([table(X, M), table(IMAGES, Y)], {"y"})
    assert (stay.view, stay.border) == (M, Border())
    assert resident_candidates([table(X, M), pool(IMAGES, Y)], {"y"}) == []
    assert resident_candidates([table(X, M), table(replace(IMAGES, offset=2), Y)], {"y"}) == []


def test_vectors_lie_as_in_memory_for_views_with_other_axes() -> None:
    context = Context(PRESETS["tiny"], Emitter(PRESETS["tiny"], 0), ConstantPool(), {})
    context.make_resident(M, Border(), 100)
    for image in range(2):
        tile = context.tile_in_act(IMAGES, Box(image, 0, 1, 2, 6, 0, 6))
        assert tile is not None and tile == context.tile_in_act(M, Box(0, image, 1, 2, 6, 0, 6))
        assert (tile.base, tile.line) == (100 + 36 * image + 12, 6)


def test_residents_take_no_more_than_their_share() -> None:
    layers = [table(X, M), table(M, Y), table(Y, Z)]
    rows = M.n * M.cb * M.h * M.w  # both live while the second layer runs
    chosen = [
        [stay.view.buffer for stay in choose_residents(PRESETS["tiny"].with_(act_rows=1024), layers, {"z"}, share)]
        for share in (2 * rows / 1024, 1.9 * rows / 1024, 0.9 * rows / 1024)
    ]
    assert chosen == [["m", "y"], ["m"], []]


def test_short_lives_stay_first() -> None:
    """Tensors that are read at once save most traffic, if there is room for one at a time."""
    names = "abcde"
    views = [X, *(planes(name) for name in names)]
    layers = [table(x, y) for x, y in itertools.pairwise(views)]
    layers[3] = ElementLayer("d", "QAdd", [views[3], views[1]], views[4], Post())  # this layer keeps `a` alive
    rows = X.n * X.cb * X.h * X.w
    machine = PRESETS["tiny"].with_(act_rows=1024)
    chosen = choose_residents(machine, layers, {"e"}, share=1.9 * rows / 1024)
    assert [stay.view.buffer for stay in chosen] == ["b", "d"]


def test_lives_that_meet_are_kept_apart() -> None:
    lives = [(0, 2, 40), (2, 3, 30), (4, 5, 50), (7, 8, 40)]
    stays = [Stay(replace(X, buffer=str(n)), Border(), 0, rows, a, b) for n, (a, b, rows) in enumerate(lives)]
    placed = place_residents(200, stays)
    assert len(placed) == 4
    for a in placed:
        assert a.start + a.rows <= 200
        for b in placed:
            if a is not b and a.first <= b.last + 1 and b.first <= a.last + 1:
                assert a.start + a.rows <= b.start or b.start + b.rows <= a.start
    assert placed[3].start == 160  # the top is free again
    assert place_residents(60, stays[:1])[0].start == 20
    assert place_residents(44, stays[:1]) == []  # an eighth is left for tiles
