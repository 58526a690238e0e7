"""Programs that kernels become, with reports, timeline, and choices of sizes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright import kernel as tk
from tilewright.isa.assembler import assemble
from tilewright.isa.encoding import to_bytes
from tilewright.kernel.chip import Chip
from tilewright.kernel.places import Tensor


@tk.kernel
def chained(k: Chip, x: Tensor, *, w: np.ndarray, rows: int = 8) -> tuple[Tensor, Tensor]:
    y, z = k.tensor((x.rows, len(w)), "y"), k.tensor((x.rows, len(w)), "z")
    weights, params = k.weights(w), k.params(0, 1 / 256)
    with k.section("product"):
        for part in tk.chunks(x.rows, rows):
            k.requantise(k.matmul(k.load(x.at(part)), weights), params, into=y.at(part))
    with k.section("sum"):
        tile = k.tile(y.blocks, rows, buffers=2)
        for part in tk.chunks(x.rows, rows):
            k.load(y.at(part), into=tile)
            k.add(tile, tile, into=z.at(part))
    return y, z


@chained.reference
def twice(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.clip(np.rint(x.astype(np.int32) @ w.astype(np.int32).T / 256), -128, 127).astype(np.int8)
    return y, np.clip(2 * y.astype(np.int32), -128, 127).astype(np.int8)


W = np.random.default_rng(5).integers(-128, 128, (24, 32), np.int8)


@pytest.mark.medium
def test_two_results_through_dram() -> None:
    for config in ("base", "tiny"):
        chained.check((32, 32), w=W, config=config)


def test_rows_of_the_report_are_sections() -> None:
    built = chained.build((32, 32), w=W)
    explained = built.explain()
    assert [row.layer.name for row in explained.rows] == ["product", "sum"]
    assert explained.cycles == built.cycles
    product, total = built.program.layers
    assert product.macs == 32 * 24 * 32 and total.macs == 0
    assert (product.write_bytes, total.read_bytes, total.write_bytes) == (32 * 32, 32 * 32, 32 * 32)
    assert product.first == 0 and product.count + total.count == built.program.steps[0].count - 1


def test_the_bound_of_a_whole_kernel() -> None:
    @tk.kernel
    def copy(k: Chip, x: Tensor) -> Tensor:
        y = k.tensor(x.shape)
        k.store(k.load(x.at()), y.at())
        return y

    built = copy.build((64, 32))
    (layer,) = built.program.layers
    assert (layer.name, layer.minimum_bytes, layer.minimum_writes) == ("copy", 2 * 64 * 32, 64 * 32)
    assert 0 < built.explain().bound <= built.cycles


def test_assembly_and_tiles(tmp_path: Path) -> None:
    built = chained.build((32, 32), w=W)
    assert to_bytes(assemble(built.asm())) == built.program.instructions
    lines = [line for line in built.tiles if line.startswith("#")]
    assert lines and all(line.startswith("# test_built.py:") for line in lines)
    assert sum(line.startswith("matmul") for line in built.tiles) == 4
    built.timeline(tmp_path / "timeline.json")
    assert json.loads((tmp_path / "timeline.json").read_text(encoding="utf-8"))["traceEvents"]


def test_programs_can_be_saved(tmp_path: Path) -> None:
    import tilewright as tw

    x = np.arange(32 * 32, dtype=np.int32).astype(np.int8).reshape(32, 32)
    built = chained.build(x, w=W)
    built.program.save(tmp_path / "chained.twp")
    found = tw.Device("functional").run(tw.load(tmp_path / "chained.twp"), {"x": x})
    for name, value in zip("yz", twice(x, W), strict=True):
        np.testing.assert_array_equal(found[name], value)


def test_the_fastest_choice() -> None:
    cycles = {rows: chained.build((32, 32), w=W, rows=rows).cycles for rows in (1, 8, 16)}
    built, chosen = chained.tune((32, 32), w=W, rows=tk.Choices(1, 8, 16, 10**6))
    assert built.cycles == min(cycles.values())
    assert cycles[chosen["rows"]] == built.cycles


def test_two_buffers_overlap_loads() -> None:
    @tk.kernel
    def rows(k: Chip, x: Tensor, *, buffers: int) -> Tensor:
        y, tile, table = k.tensor(x.shape), k.tile(x.blocks, 16, buffers=buffers), k.table(np.arange(-128, 128))
        for part in tk.chunks(x.rows, 16):
            k.load(x.at(part), into=tile)
            k.apply(tile, table, into=y.at(part))
        return y

    one, two = (rows.build((256, 64), buffers=buffers).cycles for buffers in (1, 2))
    assert two < 0.8 * one


def test_a_thousand_instructions_are_built_quickly() -> None:
    """Calls of Python functions grow with the instructions, and are not many for each."""

    @tk.kernel
    def many(k: Chip, x: Tensor) -> Tensor:
        y, table = k.tensor(x.shape), k.table(np.arange(-128, 128))
        for row in range(x.rows):
            k.apply(k.load(x.at(row)), table, into=y.at(row))
        return y

    def calls(rows: int) -> int:
        count = 0

        def counted(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            many.build((rows, 16))
        finally:
            sys.setprofile(None)
        return count

    assert len(many.build((330, 16)).program.instructions) // 16 >= 990
    one, two = calls(330), calls(660)
    assert two < 2.1 * one and one < 990 * 150, (one, two)
