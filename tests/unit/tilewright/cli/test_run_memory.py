"""`tilewright run` beside the memory of a board: the cycles of `explain`, and those of the RTL."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tilewright.cli import cli

pytestmark = pytest.mark.usefixtures("compiled_once")

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
BOARD = ("--board", "ulx3s_85f", "--memory", "sdram")


def figures(*arguments: object) -> dict:
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json", "-"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.medium
def test_a_model_is_compiled_for_the_memory_it_runs_beside() -> None:
    run = figures("run", DIGITS, "--config", "wide", "--backend", "cycle", *BOARD)
    explained = figures("explain", DIGITS, "--config", "wide", *BOARD)
    assert run["cycles"] == explained["cycles"]
    assert run["bound_cycles"] == explained["bound_cycles"]
    assert run["latency"]["clock_mhz"] == explained["latency"]["clock_mhz"] == 75


@pytest.mark.slow
@pytest.mark.cosim
def test_the_rtl_has_the_same_memory(tmp_path: Path) -> None:
    program = tmp_path / "digits.twp"
    figures("compile", DIGITS, "--config", "tiny", "-o", program)
    slow = ("--latency", 40, "--interval", 2.5)
    cycles = {b: figures("run", program, "--backend", b, *slow)["cycles"] for b in ("cycle", "rtl")}
    assert cycles["cycle"] == cycles["rtl"] > figures("run", program, "--backend", "cycle")["cycles"]


@pytest.mark.medium
def test_a_memory_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "digits.twp"
    figures("compile", DIGITS, "--config", "tiny", "-o", program)
    done = CliRunner().invoke(cli, ["run", str(program), "--interval", "2"])
    assert done.exit_code == 2 and "--backend cycle and rtl (not 'functional')" in done.stderr
