"""Reading spaces: what is accepted, and the one line for what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.common.paths import ROOT
from tilewright.fpga.area import load as load_area
from tilewright.fpga.sdram.timing import sdram_timing
from tilewright.isa.config import PRESETS, ConfigError
from tilewright.sweep import SpaceError, load_space
from tilewright.sweep.boards import choose_board
from tilewright.sweep.expressions import Expression
from tilewright.sweep.space import parse_space

BOARD_DSP = 220  # of the XC7Z020
EXAMPLES = ROOT / "examples" / "sweeps"


def test_axes_of_every_kind() -> None:
    space = parse_space(
        {
            "base": "tiny",
            "axes": {
                "queue_depth": [4, 8],
                "act_rows": {"min": 1024, "max": 5000, "log2": True},
                "acc_rows": {"min": 64, "max": 200, "step": 64},
                "semaphores": {"choices": [12, 31]},
                "block_out": "block_in",
            },
            "memory": {"read_latency": [1, 100], "write_latency": "read_latency + 1"},
        }
    )
    assert [axis.values for axis in space.axes] == [(4, 8), (1024, 2048, 4096), (64, 128, 192), (12, 31), (1, 100)]
    assert space.size == 2 * 3 * 3 * 2 * 2
    everything = [space.point(space.assignment(n)) for n in range(space.size)]
    assert len({point.id for point in everything}) == space.size
    last = everything[-1]
    assert (last.config.queue_depth, last.config.act_rows, last.config.acc_rows) == (8, 4096, 192)
    assert (last.timing.read_latency, last.timing.write_latency) == (100, 101)
    assert last.config.block_out == last.config.block_in == 4


def test_points_that_behave_equally_have_one_id() -> None:
    space = parse_space({"axes": {"queue_depth": [32]}})
    other = parse_space({"base": "base", "memory": {"read_latency": [64]}})
    assert space.point(space.assignment(0)).id == other.point(other.assignment(0)).id
    assert space.point(space.assignment(0)).config.fingerprint == PRESETS["base"].fingerprint


def test_an_axis_under_a_condition() -> None:
    """A field whose condition does not hold has one value, so there is one point; it may be about such fields."""
    table: dict[str, Any] = {
        "base": "base",
        "axes": {
            "vector_passes": [1, 2],
            "row_unit": {"choices": [0, 1], "when": "vector_passes == 1", "else": 0},
            "queue_depth": {"min": 4, "max": 8, "log2": True, "when": "row_unit == 1"},
        },
    }
    space = parse_space(table)
    depth = PRESETS["base"].queue_depth
    expected = [(1, 0, depth), (1, 1, 4), (1, 1, 8), (2, 0, depth)]
    assert [tuple(a.values()) for a in space.grid] == expected and space.size == 8
    assert len({space.point(a).id for a in space.grid}) == 4
    for assignment in space.grid:
        assert space.assigned(space.places(assignment)) == assignment


def test_the_clock_and_an_option_of_the_compiler_as_axes() -> None:
    axes = {"small_weights": [0, 1], "clock_mhz": {"min": 50, "max": 100, "step": 50}}
    table: dict[str, Any] = {
        "base": "tiny", "axes": axes, "memory": {"read_latency": "round(clock_mhz / 5)"},
        "constraints": ["clock_mhz <= model_mhz"],
    }  # fmt: skip
    space = parse_space(table)
    points = [space.point(a) for a in space.grid]
    assert [(p.small_weights, p.clock_mhz, p.timing.read_latency) for p in points] == [
        (False, 50, 10), (False, 100, 20), (True, 50, 10), (True, 100, 20)
    ]  # fmt: skip
    assert len({p.id for p in points}) == 4
    assert parse_space(json.loads(space.text)).text == space.text
    # Without a memory that depends on it, the clock changes no cycles: results are shared, metrics are not.
    points = [p for p in map(parse_space(table | {"memory": {}}).point, space.grid) if not p.small_weights]
    assert len({p.id for p in points}) == 1 and len({p.key for p in points}) == 2


def test_fields_that_contradict_each_other() -> None:
    space = parse_space({"axes": {"act_rows": [1024, 1026]}})
    with pytest.raises(ConfigError, match="act_rows must be a multiple of act_banks"):
        space.point({"act_rows": 1026})


@pytest.mark.parametrize(
    "table, message",
    [
        ({"axis": {}}, r"unknown key 'axis' in the space \(did you mean axes\?\); known: base, models"),
        ({"axes": {"colour": [1]}}, r"unknown key 'colour' in \[axes\]; known: block_in"),
        ({"base": "huge"}, "base: unknown configuration 'huge'"),
        ({"axes": {"act_rows": []}}, r"\[axes\] act_rows must be a list of integers, a range or an expression"),
        ({"axes": {"act_rows": [1.5]}}, r"\[axes\] act_rows must be"),
        ({"axes": {"act_rows": [64, 64]}}, "has a value twice"),
        ({"axes": {"act_rows": {"min": 4, "max": 2}}}, r"act_rows max must be at least min \(4\), not 2"),
        ({"axes": {"act_rows": {"min": 4, "log2": True}}}, "must be a list, {min, max, step}"),
        ({"axes": {"block_out": "block_up"}}, "unknown name 'block_up' in 'block_up'"),
        ({"axes": {"block_out": "act_rows", "act_rows": "block_in"}}, "is given by an expression itself"),
        ({"constraints": "lut < 3"}, "constraints must be a list of strings"),
        ({"constraints": ["lut <"]}, r"constraints\[0\]: 'lut <' is no expression"),
        ({"constraints": ["luts < 3"]}, "unknown name 'luts'"),
        ({"constraints": ["__import__('os')"]}, "unknown name '__import__'"),
        ({"search": {"method": "genetic"}}, r"\[search\] method must be one of grid, random, pareto, not 'genetic'"),
        ({"search": {"method": "pareto", "sampler": "cma"}}, "sampler must be one of nsga2, nsga3, tpe, gp, not 'cma'"),
        ({"search": {"sampler": "tpe"}}, "sampler is for method = \"pareto\", not 'grid'"),
        ({"axes": {"act_rows": {"choices": [64], "else": 64}}}, r"\[axes\] act_rows: else needs when"),
        ({"axes": {"act_rows": {"choices": [64], "when": "acc_rows > 9"}, "acc_rows": [8]}}, "unknown name 'acc_rows'"),
        ({"axes": {"small_weights": [2]}}, r"\[axes\] small_weights must be 0..1, not 2"),
        ({"axes": {"clock_mhz": "act_rows"}}, "clock_mhz must be a list of integers, a range or an expression"),
        (
            {"axes": {"clock_mhz": [50]}, "clock_mhz": 60},
            "clock_mhz: the space, its board or the command gives a clock",
        ),
        ({"family": "xcup", "constraints": ["model_mhz > 9"]}, "unknown name 'model_mhz'"),
        ({"search": {"budget": 0}}, r"\[search\] budget must be 1..1000000, not 0"),
        ({"models": ["vww"], "objective": {"weights": {"resnet8": 1}}}, "no network 'resnet8' is swept; there are vww"),
        ({"models": ["vww"], "objective": {"weights": {"vww": -1}}}, "vww must be a number from 0 on, not -1"),
        ({"board": "ulx4s"}, "board: unknown board 'ulx4s'; boards: ulx3s_85f"),
        ({"boards": {"ulx4s": {}}}, "board: unknown board 'ulx4s'"),
        (
            {"boards": {"ulx3s_85f": {"search": {}}}},
            r"unknown key 'search' in \[boards.ulx3s_85f\]; known: base, family",
        ),
        ({"boards": ["ulx3s_85f"]}, r"boards must be tables \[boards.NAME\], not"),
        ({"constraints": ["lut < board_lut"]}, "unknown name 'board_lut'"),
        (
            {"family": "xcup", "clock_mhz": "model"},
            "clock_mhz: no model of the clock of 'xcup', only of ecp5, gowin, xc7",
        ),
        ({"board": "zcu104", "family": "xc7", "clock_mhz": "model"}, "no model of the clock of 'xcup'"),
        ({"board": []}, r"board must be a board, or a list of different ones, not \[\]"),
        ({"board": ["pynq_z2", "pynq_z2"]}, "board must be a board, or a list of different ones"),
        ({"board": ["pynq_z2", "ulx4s"]}, "board: unknown board 'ulx4s'"),
        ({"clock_mhz": "modell"}, "clock_mhz: unknown name 'modell'"),
        ({"axes": {"act_rows": {"min": 64, "max": 9000}, "acc_rows": {"min": 64, "max": 999}}}, "use random or pareto"),
    ],
)
def test_mistakes(table: dict[str, Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        parse_space(table)


def test_files(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"cannot read space .*none.toml: No such file"):
        load_space(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("axes = [")
    with pytest.raises(SpaceError, match=r"bad.toml: not valid TOML"):
        load_space(tmp_path / "bad.toml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_examples(path: Path) -> None:
    space = load_space(path)
    assert space.models and space.size > 1
    assert space.point(space.assignment(0)).config


def test_violations() -> None:
    names = {"a": 12.0, "b": 10.0}
    assert Expression("a <= b", names, "c").violation(names) == pytest.approx(0.2)
    assert Expression("b >= a", names, "c").violation(names) == pytest.approx(0.2)
    assert Expression("a < 20", names, "c").violation(names) == 0
    assert Expression("a < 12", names, "c").violation(names) > 0
    assert Expression("a == b", names, "c").violation(names) == 1
    assert Expression("max(a, b) * log2(8)", names, "c").value(names) == 36
    with pytest.raises(SpaceError, match="cannot be evaluated"):
        Expression("a / 0", names, "c").value(names)


@pytest.mark.parametrize("text", ["1e308 * 10", "1e308 * 10 - 1e308 * 10", "10 ** 400"])
def test_objectives_are_numbers_that_compare(text: str) -> None:
    assert Expression("a * 2", {"a": 3.0}, "c").number({"a": 3.0}) == 6
    with pytest.raises(SpaceError, match=r"c: .* gives (inf|nan), which nothing can be compared with"):
        Expression(text, {}, "c").number({})


def test_a_table_of_a_board_changes_the_space_for_it() -> None:
    table: dict[str, Any] = {
        "board": "ulx3s_85f",
        "constraints": ["lut <= board_lut"],
        "axes": {"queue_depth": [8, 16], "semaphores": [12, 24]},
        "memory": {"read_latency": [10]},
        "boards": {
            "pynq_z2": {"clock_mhz": 25, "constraints": ["board_dsp > dsp"], "axes": {"queue_depth": [4]},
                        "memory": {"read_interval": [2]}},
            "zcu104": {"family": "xc7", "memory": {"read_latency": [7]}},
        },
    }  # fmt: skip
    own = parse_space(table)
    assert (own.board, own.family, own.clock_model, own.size) == ("ulx3s_85f", "ecp5", True, 4)
    pynq = parse_space(choose_board(table, "pynq_z2"))
    assert (pynq.board, pynq.family, pynq.clock_model, pynq.size) == ("pynq_z2", "xc7", False, 2)
    assert pynq.clock is not None and pynq.clock.value({}) == 25
    assert [c.text for c in pynq.constraints] == ["lut <= board_lut", "board_dsp > dsp"]
    point = pynq.point(pynq.assignment(0))
    assert (point.config.queue_depth, point.timing.read_latency, point.timing.read_interval) == (4, 10, 2)
    assert pynq.values(point)["board_dsp"] == BOARD_DSP
    assert pynq.values(point)["queue_depth"] == 4
    # What is stored of it is the same space again.
    again = parse_space(json.loads(pynq.text))
    assert again.text == pynq.text and again.size == 2
    # Another family's model counts the area, and does not give the clock.
    large = parse_space(choose_board(table, "zcu104"))
    assert (large.family, large.clock, large.clock_model) == ("xc7", None, False)
    assert [o.text for o in large.objectives] == ["cycles", "lut"]
    # Of several boards the first is taken; each can be named.
    several = table | {"board": ["pynq_z2", "ulx3s_85f"]}
    assert parse_space(several).text == pynq.text
    assert parse_space(choose_board(several, "ulx3s_85f")).text == own.text
    assert [o.text for o in own.objectives] == ["microseconds", "lut"]


@pytest.mark.medium
@pytest.mark.parametrize("board", ["ulx3s_85f", "pynq_z2", "tang_nano_20k"])
def test_boards_of_the_example(board: str) -> None:
    """Every point is a machine, and its board has room for the smallest one or the model says why not."""
    space = load_space(EXAMPLES / "boards.toml", board=board)
    points = [space.point(space.assignment(n)) for n in range(space.size)]
    assert len({p.id for p in points}) == space.size
    if board == "ulx3s_85f":
        for point in points:
            assert point.timing == sdram_timing(point.config, 90_000_000, 120_000_000)
    area = load_area(space.family)
    for constraint in space.constraints:
        smallest = min(points, key=lambda p: area.estimate(p.config).lut)
        counted = vars(area.estimate(smallest.config))
        counts = {name: counted[name] for name in ("lut", "ff", "dsp", "bram")}
        assert constraint.violation(space.values(smallest) | counts) == 0 or board == "tang_nano_20k", constraint.text
