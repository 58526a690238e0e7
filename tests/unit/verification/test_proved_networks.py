"""The table of proved networks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verification import proved_networks


@pytest.mark.medium
def test_digits_are_proved_once_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of the same version is taken from the file; the page has it."""
    page, marks = tmp_path / "page.md", (proved_networks.START, proved_networks.END)
    page.write_text("Before.\n\n{}\nOld.\n{}\n\nBehind.\n".format(*marks))
    files = ["--json", str(tmp_path / "found.json"), "--write", str(page)]
    assert proved_networks.main(["digits@tiny", "--effort", "1", *files]) == 0
    (row,) = json.loads((tmp_path / "found.json").read_text())
    assert row["proved"] and row["elements"] == 10 and row["accesses"] > 1000 and row["cpu_seconds"] > 0
    assert "digits" in capsys.readouterr().out.splitlines()[1]
    monkeypatch.setattr(proved_networks, "prove", None)
    assert proved_networks.main(["digits@tiny", "--effort", "1", *files]) == 0
    cell = f"{row['cpu_seconds']:.0f} s, {row['megabytes']:.0f}"
    lines = page.read_text().splitlines()
    assert f"| digits | 1 | 10 | {cell} |  |  |  |" in lines
    assert "Old." not in lines and [lines[0], lines[-1]] == ["Before.", "Behind."]
    assert proved_networks.START in proved_networks.PAGE.read_text(encoding="utf-8")


def test_a_program_that_is_not_proved_is_said() -> None:
    present = proved_networks.version()
    row = proved_networks.Row("digits", "tiny", 2, False, 10, 5, "not proved: a reason", 1.0, 2, 3.0, present)
    lines = proved_networks.table([row]).splitlines()
    assert "| digits | 2 | 10 | **no** |  |  |  |" in lines
    assert lines[-1] == "* digits on `tiny`, effort 2: not proved: a reason"


def test_rows_of_other_versions_are_marked() -> None:
    present = proved_networks.version()
    rows = [proved_networks.Row("digits", config, 1, True, 10, 5, "proved", 1.0, 2, 3.0, sources)
            for config, sources in (("tiny", "abc"), ("base", present))]  # fmt: skip
    lines = proved_networks.table(rows).splitlines()
    assert "| digits | 1 | 10 | 1 s, 2 (*) |  | 1 s, 2 |  |" in lines
    assert ": 2 of 120 programs are proved: 1 at version " in lines[0]
    assert lines[0].endswith(", 1 (*) at earlier ones.")


def test_unknown_cases_and_absent_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        proved_networks.main(["digits@nowhere"])
    monkeypatch.setenv("TILEWRIGHT_MODELS", str(tmp_path))
    assert proved_networks.main(["resnet8_int8@base", "--json", str(tmp_path / "found.json")]) == 2


@pytest.mark.medium
def test_a_network_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"empty on tiny: .*empty\.onnx"):
        proved_networks.prove("empty", "tiny", tmp_path / "empty.onnx")
