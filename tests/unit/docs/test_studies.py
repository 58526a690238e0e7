"""Figures of the studies: those of their spaces, of the models of area and clock, and cycles of small networks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tw
from tests.unit.docs.pages import ROOT, commands, read
from tests.unit.docs.test_figures import rows
from tilewright import zoo
from tilewright.fpga import area, fmax
from tilewright.measure.explain import explain
from tilewright.sweep.space import Point, Space, load_space

STUDIES = {
    path.name: next(other for other in (ROOT / "docs/studies").glob("*.md") if path.name in other.read_text())
    for path in (ROOT / "examples/sweeps/studies").glob("*.toml")
}


def space_of(name: str) -> Space:
    return load_space(ROOT / "examples/sweeps/studies" / name)


def point_of(space: Space, **wanted: int) -> Point:
    """The point of a space with these values of its axes; the first values of all others."""
    found = {axis.field: axis.values[0] for axis in space.axes} | wanted
    return space.point(found)


def cells_of(name: str, first: str) -> Iterator[list[str]]:
    """Rows of the page of a space whose first cell looks like `first`, without thousands' commas."""
    for cells in rows(STUDIES[name].read_text(encoding="utf-8")):
        if re.fullmatch(first, cells[0]):
            yield [cell.replace(",", "") for cell in cells]


@pytest.mark.parametrize("name", STUDIES)
def test_spaces(name: str) -> None:
    text = STUDIES[name].read_text(encoding="utf-8")
    assert f"{space_of(name).size} points" in text
    called = [words[:2] for words, _ in commands(read(STUDIES[name].relative_to(ROOT)), "tilewright")]
    assert ["sweep", f"examples/sweeps/studies/{name}"] in called
    assert ["report", f"build/sweeps/{Path(name).stem}"] in called


def test_area_and_clock_of_mlperf_tiny() -> None:
    space, seen = space_of("tiny_under_20k.toml"), 0
    for array, passes, bus, lut, mhz, *_ in cells_of("tiny_under_20k.toml", r"\d+ x \d+"):
        block_in, block_out = map(int, array.split(" x "))
        config = point_of(
            space, block_in=block_in, block_out=block_out, vector_passes=int(passes), axi_data_bits=int(bus)
        ).config
        assert str(area.load("ecp5").estimate(config).lut) == lut
        assert f"{fmax.load('ecp5').mhz(config):.1f}" == mhz
        seen += 1
    assert seen == 8


def test_area_and_clock_of_arrays() -> None:
    space, seen = space_of("one_or_several.toml"), 0
    for machines, lut, bram, mhz, first, each, product in cells_of("one_or_several.toml", r"\d+ of \d+ x \d+"):
        count, block_in, block_out = map(int, re.findall(r"\d+", machines))
        point = point_of(space, block_in=block_in, block_out=block_out, axi_data_bits=256)
        assert count * point.config.macs_per_cycle == 1024 and point.timing.read_interval == count
        found = area.load("ecp5").estimate(point.config)
        assert (str(found.lut * count), str(found.bram * count)) == (lut, bram)
        assert f"{fmax.load('ecp5').mhz(point.config):.1f}" == mhz
        assert float(first) / count == pytest.approx(float(each), abs=0.55 / count + 0.05)
        assert float(each) * float(lut) / 1e6 == pytest.approx(float(product), abs=0.06)
        seen += 1
    assert seen == 6


def test_area_of_transformers() -> None:
    space, seen = space_of("transformer_memory.toml"), 0
    for bus, lut, _ in cells_of("transformer_memory.toml", r"\d+"):
        found = area.load("ecp5").estimate(point_of(space, axi_data_bits=int(bus), act_rows=2048, wgt_tiles=512).config)
        assert (str(found.lut), found.bram) == (lut, 182)
        seen += 1
    assert seen == 4


@pytest.mark.medium
@pytest.mark.parametrize(("network", "column"), [("ds_cnn", 7), ("autoencoder", 9)])
def test_times_of_mlperf_tiny(network: str, column: int) -> None:
    """The smallest networks on the chosen machine: exact cycles at the clock of the model."""
    best = next(cells_of("tiny_under_20k.toml", "8 x 8"))
    point = point_of(
        space_of("tiny_under_20k.toml"), block_in=8, block_out=8, vector_passes=4, axi_data_bits=int(best[2])
    )
    program = tw.compile_program(zoo.build_quantized(network), point.config, memory=point.timing, tuning="off")
    found = explain(program, point.timing)
    assert f"{found.cycles / fmax.load('ecp5').mhz(point.config) / 1e3:.3f}" == best[column]
