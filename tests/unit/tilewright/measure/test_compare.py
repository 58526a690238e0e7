"""`tilewright compare`: rows are matched whatever was fused, and the changes add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.common.paths import ROOT
from tilewright.cli import cli

pytestmark = pytest.mark.usefixtures("compiled_once")

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


def invoke(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tilewright")
    assert done.exit_code == code, done.output
    return done


def explained(config: str, *options: object) -> dict:
    return json.loads(invoke("explain", MODEL, "--config", config, *options, "--json", "-").stdout)


def check(entry: dict) -> None:
    """Sums over the matched rows are the networks' cycles; each row's difference is explained to the cycle."""
    for side in "ab":
        assert sum(row[f"{side}_cycles"] for row in entry["layers"]) == entry[side]["cycles"]
    for row in entry["layers"]:
        assert row["b_cycles"] - row["a_cycles"] == sum(row["changes"].values())


@pytest.mark.medium
def test_two_configurations() -> None:
    (entry,) = json.loads(invoke("compare", "tiny", "base", "--model", MODEL, "--latency", 30, "--json", "-").stdout)
    check(entry)
    assert entry["a"]["cycles"] == explained("tiny", "--latency", 30)["cycles"]
    assert entry["b"]["cycles"] == explained("base", "--latency", 30)["cycles"]
    assert entry["cycles_ratio"] == entry["b"]["cycles"] / entry["a"]["cycles"]
    assert entry["config_differences"]["block_in"] == [4, 16] and "name" not in entry["config_differences"]


@pytest.mark.medium
def test_two_programs_fused_differently(tmp_path: Path) -> None:
    for effort in (0, 1):
        invoke("compile", MODEL, "-o", tmp_path / f"{effort}.twp", "--config", "base", "--effort", effort)
    (entry,) = json.loads(invoke("compare", tmp_path / "0.twp", tmp_path / "1.twp", "--json", "-").stdout)
    check(entry)
    fused = [row for row in entry["layers"] if " + " in row["name"]]
    assert fused and entry["config_differences"] == {}
    assert all(row["a_cycles"] and row["b_cycles"] for row in fused)


@pytest.mark.medium
def test_tables() -> None:
    one = invoke("compare", "tiny", "base", "--model", MODEL).stdout
    assert "block_in 4 -> 16" in one and "difference made by" in one and "b bytes" in one
    two = invoke("compare", "tiny", "base", "--model", MODEL, "--model", MODEL).stdout
    assert "difference made by" not in two and two.count("digits_int8") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "base"], "--model FILE"),
        (["tiny", MODEL], "two configurations, or two programs"),
        ([MODEL, MODEL, "--model", MODEL], "--model goes with two configurations"),
        (["tiny", "base", "--model", MODEL, "--config", "large"], "--config has no effect"),
        (["tiny", "nowhere.toml", "--model", MODEL], "nowhere.toml"),
        (["missing.twp", MODEL], "missing.twp"),
    ],
)
def test_mistakes(arguments: list[object], message: str) -> None:
    assert message in invoke("compare", *arguments, code=2).stderr
