"""Reading spaces: what is accepted, and the one line for what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isa.config import PRESETS, ConfigError
from tests.common.paths import ROOT
from tilewright.sweep import SpaceError, load_space
from tilewright.sweep.expressions import Expression
from tilewright.sweep.space import parse_space

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


def test_fields_that_contradict_each_other() -> None:
    space = parse_space({"axes": {"act_rows": [1024, 1026]}})
    with pytest.raises(ConfigError, match="act_rows must be a multiple of act_banks"):
        space.point({"act_rows": 1026})


@pytest.mark.parametrize(
    "table, message",
    [
        ({"axis": {}}, "unknown key 'axis' in the space; known: base, models"),
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
        ({"search": {"budget": 0}}, r"\[search\] budget must be 1..1000000, not 0"),
        ({"models": ["vww"], "objective": {"weights": {"resnet8": 1}}}, "no network 'resnet8' is swept; there are vww"),
        ({"models": ["vww"], "objective": {"weights": {"vww": -1}}}, "vww must be a number from 0 on, not -1"),
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
