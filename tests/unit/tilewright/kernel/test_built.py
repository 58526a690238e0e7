"""Programs that kernels become, with reports, timeline, and choices of sizes."""

import json
import time
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
    @tk.kernel
    def many(k: Chip, x: Tensor) -> Tensor:
        y, table = k.tensor(x.shape), k.table(np.arange(-128, 128))
        for row in range(x.rows):
            k.apply(k.load(x.at(row)), table, into=y.at(row))
        return y

    assert len(many.build((330, 16)).program.instructions) // 16 >= 990
    started = time.process_time()
    many.build((330, 16))
    assert time.process_time() - started < 0.15  # a third of it on an idle machine


@pytest.mark.medium
def test_weights_from_dram_are_those_of_the_last_store() -> None:
    @tk.kernel
    def squares(k: Chip, x: Tensor) -> tuple[Tensor, Tensor]:
        held, params = k.tensor((x.rows, x.channels), "held"), k.params(0, 1 / 512)
        results = k.tensor((x.rows, x.rows), "first"), k.tensor((x.rows, x.rows), "second")
        negated = k.table([min(127, -v) for v in range(-128, 128)])
        for y, table in zip(results, (None, negated), strict=True):
            tile = k.load(x.at())
            k.store(tile if table is None else k.apply(tile, table), held.at())
            for some in tk.chunks(y.blocks, 4):
                weights = k.weights_from(held).at(outputs=some)
                k.requantise(k.matmul(k.load(x.at()), weights), params, into=y.at(blocks=some))
        return results

    x = np.random.default_rng(4).integers(-127, 128, (32, 24), np.int8)
    product = x.astype(np.int32) @ x.T.astype(np.int32)
    wanted = [np.clip(np.rint(np.float32(sign * product) / 512), -128, 127) for sign in (1, -1)]
    for config in ("base", "tiny", "wide"):
        for found, value in zip(squares(x, config=config, device="cycle"), wanted, strict=True):
            np.testing.assert_array_equal(found, value)


@tk.kernel
def shuffled(k: Chip, x: Tensor) -> Tensor:
    y = k.tensor((1, x.channels, 2 * x.rows, x.columns))
    tile, out = k.load(x.at()), k.tile(x.blocks, 2 * x.rows, x.columns)
    identity = k.table(range(-128, 128))
    for odd in (0, 1):  # columns of one parity first, in every second row
        half = x.columns // 2
        source = tile.at(columns=range(odd, x.columns, 2)).at(rows=range(0, x.rows))
        for start in (0, 1):
            k.apply(source, identity, into=out.at(range(start, 2 * x.rows, 2), range(odd * half, (odd + 1) * half)))
    k.store(out, y.at())
    return y


@shuffled.reference
def shuffled_in_numpy(x: np.ndarray) -> np.ndarray:
    return np.repeat(np.concatenate([x[..., ::2], x[..., 1::2]], 3), 2, 2)


@pytest.mark.medium
@pytest.mark.parametrize("config", ["base", "tiny"])
def test_parts_with_steps(config: str) -> None:
    shuffled.check((1, 20, 5, 6), config=config)


def test_steps_of_parts_that_cannot_be() -> None:
    @tk.kernel
    def wrong(k: Chip, x: Tensor, *, how: str) -> Tensor:
        tile, y = k.load(x.at()), k.tensor(x.shape)
        if how == "tensor":
            k.load(x.at(range(0, 4, 2)))
        elif how == "blocks":
            tile.at(blocks=range(1, 0, -1))
        elif how == "beyond":
            tile.at(rows=range(0, 9, 3))
        k.store(tile.at(columns=range(0, 6, 2)), y.at(columns=range(3)))
        return y

    for how, message in {
        "tensor": "rows must be a range of one or more with step 1, not range.0, 4, 2.",
        "blocks": "blocks must be a range of one or more with step 1",
        "beyond": "rows 0..6 lie outside the 5 there are",
        "store": "columns of the tile .* do not lie side by side",
    }.items():
        with pytest.raises(tk.KernelError, match=message):
            wrong.build((1, 20, 5, 6), how=how)


@pytest.mark.medium
def test_loads_have_the_values_of_their_place_in_the_program() -> None:
    @tk.kernel
    def exchanged(k: Chip, x: Tensor) -> Tensor:
        y, identity = k.tensor(x.shape), k.table(range(-128, 128))
        k.store(k.load(x.at()), y.at())
        before = k.load(y.at())  # LOAD is written where `before` is read, but not behind the stores
        half = x.rows // 2
        k.apply(k.load(x.at(range(half))), k.table([0] * 256), into=y.at(range(half)))
        buffer = k.load(y.at(range(half)), into=k.tile(x.blocks, x.rows).at(range(half)))  # zeros, in part of a tile
        k.apply(before.at(range(half)), identity, into=y.at(range(half, x.rows)))
        k.store(buffer, y.at(range(half)))
        return y

    x = np.random.default_rng(6).integers(-128, 128, (24, 20), np.int8)
    wanted = np.concatenate([np.zeros((12, 20), np.int8), x[:12]])
    for config in ("base", "tiny"):
        np.testing.assert_array_equal(exchanged(x, config=config, device="cycle"), wanted)


def test_constants_come_before_loads_that_are_read_later() -> None:
    @tk.kernel
    def windowed(k: Chip, x: Tensor, *, w: np.ndarray) -> Tensor:
        window, y = k.window(w, pad=1), k.tensor(x.shape)
        sums = k.depthwise(k.load(x.at(range(-1, x.rows + 1), range(-1, x.columns + 1)), pad=0), window)
        k.requantise(sums, k.params(0, 1 / 64), into=y.at())
        return y

    built = windowed.build((1, 64, 9, 9), config="small", w=np.ones((64, 3, 3), np.int8))
    loads = [line.split()[1][:3] for line in built.tiles if line.startswith("load")]
    assert loads[0] == "act" and "act" in loads[loads.index("wgt") :]
