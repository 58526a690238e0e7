"""The table of proved networks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verification import proved_networks


@pytest.mark.medium
def test_digits_are_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proved_networks.main(["digits@tiny", "--json", str(tmp_path / "found.json")]) == 0
    (row,) = json.loads((tmp_path / "found.json").read_text())
    assert row["proved"] and row["elements"] == 10 and row["accesses"] > 1000 and row["cpu_seconds"] > 0
    assert "digits" in capsys.readouterr().out.splitlines()[1]


def test_unknown_cases_and_absent_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        proved_networks.main(["digits@nowhere"])
    monkeypatch.setenv("TILEWRIGHT_MODELS", str(tmp_path))
    assert proved_networks.main(["resnet8_int8@base"]) == 2


@pytest.mark.medium
def test_a_network_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"empty on tiny: .*empty\.onnx"):
        proved_networks.prove("empty", "tiny", tmp_path / "empty.onnx")
