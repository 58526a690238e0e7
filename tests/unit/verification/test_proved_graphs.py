"""Proofs of random graphs as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.prove.checker.compare import Verdict
from verification import proved_graphs


@pytest.mark.medium
def test_graphs_and_machines_are_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    counts = ["--graphs", "2", "--machines", "1", "--litert", "1"]
    assert proved_graphs.main([*counts, "--first", "3", "--json", str(path)]) == 0
    assert [(each["seed"], each["found"]) for each in json.loads(path.read_text())] == [
        (3, "proved"), (4, "proved"), (100_003, "proved"), (3, "proved")
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines()[-1] == "4 proved, 0 no rule, 0 rejected, 0 wrong"


@pytest.mark.medium
def test_a_program_that_is_not_proved_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proved_graphs, "prove", lambda *_: Verdict(reason="outputs have other names"))
    assert proved_graphs.main(["--graphs", "1", "--machines", "0"]) == 1
    assert "no input shows it" in capsys.readouterr().out
    monkeypatch.setattr(proved_graphs, "prove", lambda *_: Verdict(reason="not proved: no rule for QThing"))
    assert proved_graphs.main(["--graphs", "1", "--machines", "0"]) == 0
    assert "1 no rule" in capsys.readouterr().out
