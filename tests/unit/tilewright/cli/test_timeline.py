"""`tilewright run --timeline`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tilewright.cli import cli

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.mark.medium
def test_timeline_of_a_network(tmp_path: Path) -> None:
    out, result = tmp_path / "timeline.json", tmp_path / "result.json"
    options = ["--config", "tiny", "--backend", "cycle", "--timeline", str(out), "--json", str(result)]
    done = CliRunner().invoke(cli, ["run", str(MODEL), *options])
    assert done.exit_code == 0, done.output
    cycles = json.loads(result.read_text())["cycles"]
    events = json.loads(out.read_text())["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {"layers", "LOAD", "GEMM", "VECTOR", "STORE", "GEMM waits"} <= tracks
    assert sum(e["args"]["cycles"] for e in events if e["ph"] == "b") == cycles > 1000
    assert all(0 < e["ts"] <= cycles + 1 for e in events if "ts" in e)


def test_timeline_needs_a_clock(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["run", str(MODEL), "--timeline", str(tmp_path / "x.json")])
    assert done.exit_code == 2 and "--backend cycle" in done.stderr
