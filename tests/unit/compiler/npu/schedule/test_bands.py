"""Bands of fused groups: the rows each layer makes per band, those its readers still have, and their cost."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
from msgspec.structs import replace

from tests.unit.compiler.npu.layers.running import run
from tests.unit.compiler.npu.schedule.test_channels import Chain
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.layers.layer import Layer, Post, readers
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer, MeanLayer
from tilewright.compiler.npu.schedule.bands import LayerGroup, LayerWork, band_ranges, emit_group, group_of
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.compiler.npu.views import View, dense_view
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.instructions import Engine
from tilewright.isa.program import ARENA_REGION


def planes(name: str, height: int, width: int = 8) -> View:
    return dense_view(name, name, ARENA_REGION, (1, 4, height, width), 4)


def pool(x: View, y: View, **window: tuple[int, int]) -> MaxPoolLayer:
    return MaxPoolLayer(y.buffer, "QMaxPool", [x], y, Post(), **window)  # type: ignore[arg-type]


def group(layers: list[Layer], outside: tuple[str, ...] = ("y",)) -> LayerGroup | None:
    """Returns the layers as a fused group, None if they cannot be one; `outside` are buffers that others read."""
    return group_of(layers, 0, len(layers), readers(layers), set(outside))


def test_a_halo_is_made_once() -> None:
    """The first band below a 3x3 makes a row more than it passes on, and every later band finds two rows."""
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


def test_rows_stay_for_a_reader_that_makes_nothing_in_a_band() -> None:
    """Every other band below rows that are repeated finds its rows made; the rows above are needed again later."""
    config = PRESETS["tiny"]
    made = Chain.of(config, 3, 6, (8, 5))
    made.table()
    made.largest(3, 1)
    made.nearest(2, 1)
    made.conv(5, 3, 1)
    found = group(made.layers, (made.layers[-1].output.buffer,))
    assert found is not None
    banded = replace(found, step=1)
    bands = band_ranges(banded)
    idle = [n for n, band in enumerate(bands) if band.made[0][0] == band.made[0][1]]
    assert len(idle) > 6
    for n in idle[:-1]:
        assert bands[n].window[0][0] <= bands[n + 1].window[0][0]
    assert all(band.window[0][0] <= max(0, band.made[1][0] - 1) for band in bands if band.made[1][0] < band.made[1][1])
    x = Chain.of(config, 3, *_input(made)).x
    assert (run(config, made.layers, Schedule([], [banded]), x) == made.x).all()


def chain(random: Random, config: NpuConfig, seed: int) -> Chain:
    """Returns two to four random layers of kinds that can be fused, on planes of at least two rows."""
    size = random.randint(2, 12), random.randint(1, 9)
    made = Chain.of(config, seed, random.randint(1, 2 * config.block_in), size)
    for _ in range(random.randint(2, 4)):
        kind = random.randrange(5)
        if kind == 0:
            stride = random.choice((1, 2)) if made.x.shape[1] > 4 else 1
            made.depthwise(*random.choice(((3, 1), (2, 1), (5, 2))), stride=stride)
        elif kind == 1:
            made.largest(3, 1)
        elif kind == 2:
            made.table()
        elif kind == 3:
            made.nearest(random.randint(1, 3), random.randint(1, 2))
        else:
            made.conv(random.randint(1, 2 * config.block_out), *random.choice(((1, 0), (3, 1), (2, 1))))
    return made


@pytest.mark.medium
@pytest.mark.parametrize("name", ["tiny", "small", "wide"])
def test_bands_of_any_height_give_the_right_bytes(name: str) -> None:
    """Padding is made around every band, with each reader's value, and kept lines are those that were made."""
    random, config, bands = Random(name), PRESETS[name], 0
    for seed in range(24):
        made = chain(random, config, seed)
        found = group(made.layers, (made.layers[-1].output.buffer,))
        if found is None:
            continue
        x = Chain.of(config, seed, *_input(made)).x
        banded = replace(found, step=random.randint(1, made.layers[-1].output.h - 1))
        assert (run(config, made.layers, Schedule([], [banded]), x) == made.x).all(), (seed, made.layers, banded.step)
        bands += len(band_ranges(banded))
    assert bands > 60


def _input(made: Chain) -> tuple[int, tuple[int, int]]:
    view = made.layers[0].inputs[0]
    return view.c, (view.h, view.w)


def work(config: NpuConfig, group: LayerGroup, dry: bool) -> tuple[list[LayerWork], Emitter]:
    """Returns the work of each layer of a group, and the emitter that counted or wrote it."""
    views = {view.buffer for layer in group.layers for view in (*layer.reads, layer.output)}
    emitter = Emitter(config, 1 << 16, dry=dry)
    return emit_group(Context(config, emitter, ConstantPool(), dict.fromkeys(views, 0)), group), emitter


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("step", [1, 2, 4, 8, 16])
def test_bands_cost_what_emitting_them_takes(step: int, images: int) -> None:
    """A sample of the bands gives the exact cost: those between the first and the last are the same work.

    Padding below the image may be filled in several bands. Weights, which stay, count for every image.
    """
    config = PRESETS["tiny"]
    made = Chain.of(config, 1, 6, (16, 7))
    made.conv(5, kernel=3, pad=1)
    made.largest(3, 1)
    made.conv(9)
    several = [_of_images(layer, images) for layer in made.layers]
    found = group(several, ("t2",))
    assert found is not None
    (guessed, dry), (written, emitter) = (work(config, replace(found, step=step), dry) for dry in (True, False))
    cycles, exact = dry.work, emitter.work
    assert [layer.write_bytes for layer in written] == [0, 0, emitter.write_bytes]
    assert sum(layer.read_bytes for layer in written) == emitter.read_bytes
    for engine in (Engine.GEMM, Engine.VECTOR, Engine.STORE):
        assert cycles[engine] == exact[engine] > 0
    assert 0.99 < cycles[Engine.LOAD] / exact[Engine.LOAD] < (1.01 if images == 1 else 1.3)
    for number, engine in enumerate((Engine.GEMM, Engine.VECTOR)):
        assert sum(band[number] for layer in guessed for band in layer.steps) == exact[engine]
    assert all(len(layer.steps) == images * 16 // step for layer in guessed)


def _of_images(layer: Layer, images: int) -> Layer:
    several = lambda view: replace(view, n=images)
    return dataclasses.replace(layer, inputs=[several(view) for view in layer.inputs], output=several(layer.output))
