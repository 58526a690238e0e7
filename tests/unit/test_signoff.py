"""The page of sign-off says what the files say, and what is missing."""

import json
from pathlib import Path

import pytest

from common.measured import digest_of_sources
from tests.signoff import main, page, share

MEASURED = {"day": "2026-11-23", "sources": digest_of_sources()}


def test_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(tmp_path).count("Open: not measured.") == 5
    survivor = {"number": 7, "mode": "inv", "place": "core.x[3]", "lines": ["hw/queue.py:9"]}
    mutants = {
        "command": "python -m tests.mutants --count 4",
        "config": "tiny",
        "seed": 1,
        "sample": 9,
        "faults": 4,
        "found": 3,
    }
    same = survivor | {"number": 8}
    mutants |= MEASURED | {
        "survivors": [survivor],
        "equivalent": [same],
        "modules": {"hw/queue.py": {"faults": 4, "found": 3}},
    }
    (tmp_path / "mutants.json").write_text(json.dumps(mutants))
    proof = {"proof": "queue", "bound": "all", "properties": ["a", "b"], "proved": False, "faults_found": 0}
    formal = (
        {"command": "python -m hw.formal", "faults": False, "all": 3, "proofs": [proof]} | MEASURED | {"sources": "0"}
    )
    (tmp_path / "formal.json").write_text(json.dumps(formal))
    text = page(tmp_path)
    assert text.count("Open: not measured.") == 3
    assert "3 of 4 (75.0 %) faults found on `tiny`" in text and "| 7 inv | `core.x[3]` | hw/queue.py:9 |" in text
    assert "; 1 are proved to change nothing" in text and "| 8 inv | `core.x[3]` | hw/queue.py:9 |" in text
    assert ".venv/bin/python -m tests.mutants --count 4\n" in text
    assert "| `queue` | all | 2 | NO | not run |" in text and "Open: 2 proofs not run" in text
    assert text.count("Measured on 2026-11-23, sources of the RTL") == 2
    assert text.count("`0`, which have changed since then:") == text.count("changed since") == 1
    (tmp_path / "fuzz.json").write_text("{}")
    assert main(["--folder", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    assert "fuzz.json is not what python -m tests.fuzz writes" in capsys.readouterr().err
    assert share(0, 0) == "0 of 0 (100.0 %)"
