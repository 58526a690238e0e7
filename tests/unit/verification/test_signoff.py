"""The page of sign-off says what the files say, and what is missing."""

import json
import re
from pathlib import Path

import pytest

from tilewright.isa.config import preset
from verification.code import digest_of_code
from verification.mutants.run import reviewed
from verification.rtl_text import digest_of_rtl
from verification.signoff import BLOCKS, PAGE, digest_of, main, page, share
from verification.source_faults import CPP
from verification.trials.all import PURPOSES, all_trials
from verification.trials.all import table as table_of_trials

MEASURED = {"day": "2026-11-23", "sources": "7"}


def page_now(folder: Path, old: str = "", commit: str = "") -> str:
    """The page, where each block is about something of the digest `NAMEnow`."""
    return page(folder, old, commit, digest=lambda block: f"{block.name}now")


def test_page(tmp_path: Path) -> None:
    assert page_now(tmp_path).count("Open: not measured.") == len(BLOCKS)
    survivor = {"number": 7, "mode": "inv", "place": "core.x[3]", "lines": ["hw/parts/queue.py:9"]}
    mutants = {
        "command": "python -m verification.mutants --count 4",
        "config": "tiny",
        "seed": 1,
        "sample": 9,
        "faults": 5,
        "found": 1,
    }
    same = survivor | {"number": 8}
    mutants |= MEASURED | {
        "sources": "2",
        "survivors": [survivor],
        "equivalent": [same],
        "waived": [survivor | {"number": 9, "reason": "nobody gets there"}],
        "reviewed": [survivor | {"number": 10, "reason": "it is always 1"}],
        "modules": {"hw/parts/queue.py": {"faults": 5, "found": 1}},
    }
    (tmp_path / "mutants.json").write_text(json.dumps(mutants))
    proof = {"proof": "queue", "bound": "all", "properties": ["a", "b"], "proved": False, "faults_found": 0}
    formal = (
        {"command": "python -m verification.formal", "faults": False, "all": 3, "proofs": [proof]}
        | MEASURED
        | {"sources": "0"}
    )
    (tmp_path / "formal.json").write_text(json.dumps(formal))
    left = {"where": "compiler/npu/a.py:3", "what": "1 -> 2", "looks": 9}
    known = {"where": "compiler/npu/b.py:4", "what": "Lt -> LtE", "reason": "both are as good"}
    part = {"faults": 9, "found": 7, "seconds": 30, "survivors": [left], "reviewed": [known]}
    parts = {"compiler/npu": part}
    in_sources = {"command": "python -m verification.source_faults", "seed": 1} | MEASURED | {"sources": "1"} | parts
    (tmp_path / "python_faults.json").write_text(json.dumps(in_sources))
    text = page_now(tmp_path, commit="01234567")
    assert "Written at commit `01234567`." in text and text.count("Open: not measured.") == len(BLOCKS) - 3
    assert "| `compiler/npu` | 7 of 9 (77.8 %) | 8 of 9 (88.9 %) | 30 |" in text
    assert (
        "not explained:\n\n| place | fault | looks |\n|---|---|---|\n| `compiler/npu/a.py:3` | `1 -> 2` | 9 |" in text
    )
    assert "by hand (`verification/source_faults/reviewed.toml`):" in text
    assert "| `compiler/npu/b.py:4` | `Lt -> LtE` | both are as good |" in text
    assert "code of the compiler `1`, changed since then" in text
    assert (
        "1 of 4 (25.0 %) faults found on `tiny`, among the first 5 of a sample of 9" in text
        and "| 7 inv | `core.x[3]` | hw/parts/queue.py:9 |" in text
    )
    assert "and 1 were looked into by hand: 3 of 4 (75.0 %) are found" in text and "it is always 1 |" in text
    assert "1 of those not found are in bits" in text and "| 9 inv | `core.x[3]` | nobody gets there |" in text
    assert "; 1 more are proved to change nothing" in text and "| 8 inv | `core.x[3]` | hw/parts/queue.py:9 |" in text
    assert ".venv/bin/python -m verification.mutants --count 4\n" in text
    assert "| `queue` | all | 2 | NO | not run |" in text and "Open: 2 proofs not run" in text
    assert text.count("Measured on 2026-11-23, elaborated benches of the NPU `0`, changed since then") == 1
    assert "Measured on 2026-11-23, RTL of `tiny` `2`, changed since then:" in text
    (tmp_path / "mutants.json").write_text(json.dumps(mutants | {"sources": "mutantsnow"}))
    assert "Measured on 2026-11-23, RTL of `tiny` `mutantsnow`:" in page_now(tmp_path)
    assert text.count("`0`, changed since then:") == text.count("`0`, changed since") == 1
    text = page_now(tmp_path)
    formal["sources"] = "formalnow"
    (tmp_path / "formal.json").write_text(json.dumps(formal))
    now = page_now(tmp_path)
    assert text.replace("`0`, changed since then", "`formalnow`") == now
    (tmp_path / "formal.json").unlink()
    assert page_now(tmp_path, text) == text and page_now(tmp_path, now) == now  # what is not measured anew stays
    fuzz = {
        "command": "python -m verification.fuzz.programs",
        "rtl": True,
        "machines": ["tiny"],
        "seed": 1000,
        "differ": 0,
    } | MEASURED
    (tmp_path / "fuzz_rtl.json").write_text(json.dumps(fuzz | {"programs": 2999}))
    assert "2,999 programs on 1 machines, RTL and both simulators, seed 1,000: 0 differ." in page_now(tmp_path)
    assert "Open: 3,000 programs are wanted." in page_now(tmp_path)
    (tmp_path / "fuzz_rtl.json").write_text(json.dumps(fuzz | {"programs": 3000}))
    assert "3,000 programs are wanted" not in page_now(tmp_path)
    files = {
        "command": "python -m verification.fuzz.files",
        "kinds": {"onnx": {"works": 40_000, "refused": 60_000} | MEASURED},
    }
    (tmp_path / "files.json").write_text(json.dumps(MEASURED | files))
    text = page_now(tmp_path)
    assert "| `onnx` | 100,000 | 40,000 | 60,000 | 0 | 2026-11-23 |" in text and "are wanted of" not in text
    files["kinds"] |= {"tflite": {"works": 1, "failed": 2} | MEASURED}
    (tmp_path / "files.json").write_text(json.dumps(MEASURED | files))
    text = page_now(tmp_path)
    assert "| `tflite` | 3 | 1 | 0 | 2 | 2026-11-23 |" in text and "100,000 are wanted of `tflite`." in text
    run = {"network": "digits", "cycles": 1000, "seeds": 1, "bytes_equal": True, "rtl_equal": False, "random_equal": 1}
    run |= {"random_registers": 5}
    routed = {"networks": [run, run | {"network": "other"}], "config": "tiny", "board": "ulx3s_85f", "cells": 15_000}
    routed |= MEASURED | {
        "command": "python -m verification.netlists --routed",
        "changed": 3,
        "differences": 0,
        "lost": 4,
    }
    (tmp_path / "netlist_routed.json").write_text(json.dumps(routed))
    text = page_now(tmp_path)
    assert "| `digits`, `tiny` on `ulx3s_85f` | 1,000 | equal | DIFFERENT | 1 of 1 equal (5 registers) |" in text
    assert "| `other`, `tiny` on `ulx3s_85f` | 1,000 |" in text
    assert "Open: random programs (of 200 that are wanted), delays" in text
    assert "15,000 cells" in text and "3 are changed" in text and "0 are different" in text and "4 are lost" in text
    run |= {"sdram_fault": "", "sdram_commands": {"READ": 2000, "WRITE": 1}, "rtl_equal": True}
    (tmp_path / "netlist_sdram.json").write_text(
        json.dumps(routed | {"networks": [run], "sources": "netlist_sdramnow"})
    )
    text = page_now(tmp_path)
    assert "RTL of `small` on `ulx3s_85f` `netlist_sdramnow`:" in text
    assert "| 1,000 | equal | equal | 1 of 1 equal (5 registers) |" in text and "Open: random programs (of 200" in text
    assert "has checked 2,001 commands of the networks at the pins, in ns: no rule of its data sheet was brok" in text
    run["sdram_fault"] = "ACTIVE too soon, after 5.0 ns"
    (tmp_path / "netlist_sdram.json").write_text(json.dumps(routed | {"networks": [run]}))
    assert "in ns: BROKEN: ACTIVE too soon, after 5.0 ns." in page_now(tmp_path)
    programs = {"programs": 200, "programs_wrong": 1, "programs_rtl_equal": False, "faults": 5, "faults_found": 4}
    programs |= {"faulted": 20, "bits": 90_000, "bits_named": 12_345}
    (tmp_path / "netlist.json").write_text(json.dumps(routed | programs))
    text = page_now(tmp_path)
    assert "200 random programs one after the other: 1 leave other bytes" in text and "is DIFFERENT to" in text
    assert "the first 20 name 12,345 of 90,000 bits of LUTs. Of 5 such bits inverted, 4 change" in text


def test_a_damaged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fuzz.json").write_text("{}")
    assert main(["--folder", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    assert "fuzz.json is not what python -m verification.fuzz.programs writes" in capsys.readouterr().err


@pytest.mark.medium
def test_digests_are_of_what_a_block_names() -> None:
    designs = {block.name: block for block in BLOCKS}
    assert designs["mutants"].design[0] == "RTL of `tiny`"
    assert digest_of(designs["mutants"]) == digest_of_rtl(preset("tiny"))
    assert digest_of(designs["cpp_faults"]) == digest_of_code(CPP) != digest_of(designs["python_faults"])


def test_share() -> None:
    assert share(0, 0) == "0 of 0 (100.0 %)"


#: What the page must not fall below, in percent: by the name of the block or of a row of its table.
LEAST = {"lines": 100.0, "functional": 100.0, "toggles": 100.0, "faults found": 97.2}


def test_figures_do_not_get_worse() -> None:
    """The page that is committed: shares, proofs, and differences."""
    text = PAGE.read_text(encoding="utf-8")
    for name, least in LEAST.items():
        shares = re.findall(rf"^\| {name} \| .*?\(([0-9.]+) %\)|\(([0-9.]+) %\) {name}", text, re.MULTILINE)
        assert len(shares) == 1 and float("".join(shares[0])) >= least, (name, shares)
    assert "| NO |" not in text and "DIFFERENT" not in text and "BROKEN" not in text
    assert set(re.findall(r"([0-9,]+) differ\.", text)) == {"0"}
    assert set(re.findall(r"([0-9,]+) are (?:different|changed|lost)\b", text)) <= {"0"}


@pytest.mark.medium
def test_trials_have_a_purpose() -> None:
    """The table of the page: what is said of each kind of trial, of those there are, in their order."""
    assert list(dict.fromkeys(trial.kind for trial in all_trials(preset("tiny"), 2))) == list(PURPOSES)
    assert table_of_trials({"met": 12})[2:] == [f"| `met` | {PURPOSES['met']} | 12 |"]


def test_faults_looked_into_by_hand() -> None:
    """Each that has an explanation is one that no trial finds: it is on the page."""
    text = PAGE.read_text(encoding="utf-8")
    told = {f" {mode} | `{place}` | {reason} |" for (mode, place), reason in reviewed().items()}
    assert not [line for line in told if line not in text]
