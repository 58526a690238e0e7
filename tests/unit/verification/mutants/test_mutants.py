"""A small sample of faults: as many are found as were when this was written, and what is found is a difference."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.common.paths import ROOT
from tilewright.isa.config import preset
from verification.coverage.points import read_waivers
from verification.measured import SOURCES, write_with_command
from verification.mutants.__main__ import main
from verification.mutants.faults import Fault, Sample, fault_of
from verification.mutants.run import Found, kept, left_open, summary
from verification.programs.equality import CONFIGS
from verification.rtl_text import digest_of_rtl
from verification.trials.trial import trials

#: Of so many faults drawn with seed 1, by these kinds of trials: all kinds take long without a fault already.
FAULTS, LEAST = 8, 6
KINDS = ("program", "error", "registers")
#: A small machine: yosys takes most of the time.
FEW = preset("nano").with_(name="few", act_rows=512, wgt_tiles=64, acc_rows=64, prm_rows=16, queue_depth=4)


@pytest.mark.cosim
def test_faults_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, FEW.name, FEW)
    monkeypatch.setattr("verification.mutants.__main__.all_trials", trials)  # some others are for larger machines
    file = tmp_path / "found.json"
    small = ["--config", FEW.name, "--count", str(FAULTS), "--programs", "12", "--kinds", ",".join(KINDS), "--prove"]
    assert main([*small, "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["faults"] == FAULTS and figures["found"] >= LEAST
    explained = figures["found"] + len(figures["equivalent"]) + len(figures["waived"])
    assert len(figures["survivors"]) == FAULTS - explained
    assert sum(module["faults"] for module in figures["modules"].values()) == FAULTS
    shown = capsys.readouterr().out
    assert all(f"{fault['number']} {fault['mode']}" in shown for fault in figures["survivors"])


def test_a_number_of_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--count", str(FAULTS), "--programs", "4", "--only", str(FAULTS + 1)])
    assert f"--only must be 1..{FAULTS}, not {FAULTS + 1}" in capsys.readouterr().err


def test_where_a_fault_is() -> None:
    command = (
        r"mutate -mode cnot0 -module npu -cell $x -port A -portbit 0 -ctrlbit 8 -wire core.total7 -wirebit 8 "
        f"-src {ROOT}/tilewright/hw/issue/semaphores.py:106 "
        f"-src {ROOT}/tilewright/hw/parts/queue.py:1 -src {ROOT}/hw/issue/semaphores.py:110"
    )
    fault = fault_of(3, command)
    lines = ("hw/issue/semaphores.py:106", "hw/parts/queue.py:1", "hw/issue/semaphores.py:110")
    assert fault == Fault(3, "cnot0", "core.total7[8]", lines) and fault.module == "hw/issue/semaphores.py"
    assert fault_of(1, "mutate -mode inv -cell $y -port Y -portbit 2").place == "$y[2]"


@pytest.mark.medium
def test_summary() -> None:
    faults = [Fault(n, "inv", "x[0]", ("hw/parts/queue.py:1",) if n < 3 else ()) for n in range(1, 4)]
    found = [Found(faults[0], "program 0", "bytes", 0.5), Found(faults[1], ""), Found(faults[2], "error 4", "no", 1)]
    drawn = Sample("9-7", preset("nano"), "", faults, [], "")
    figures = summary(drawn, 7, 9, found)
    assert figures[SOURCES] == digest_of_rtl(drawn.config)
    assert (figures["faults"], figures["found"], figures["by"]) == (3, 2, {"program": 1, "error": 1})
    assert figures["modules"] == {"(none)": {"faults": 1, "found": 1}, "hw/parts/queue.py": {"faults": 2, "found": 1}}
    assert [survivor["number"] for survivor in figures["survivors"]] == [2] and not figures["equivalent"]
    assert figures["seconds"] == 2 and figures["each"][1] == ("program 0", 0.5, False)
    assert not figures["waived"]
    high = replace(faults[1], place="core.faults.first2_pc[21]")  # a bit that only long programs change
    figures = summary(drawn, 7, 9, [found[0], replace(found[1], fault=high), found[2]])
    assert not figures["survivors"] and "program" in figures["waived"][0]["reason"]
    assert "64 beats" in Found(replace(high, place="axi_awlen[7]"), "").waived(read_waivers(preset("tiny")))
    found[1] = replace(found[1], nothing=True)
    figures = summary(drawn, 7, 9, found)
    assert [fault["number"] for fault in figures["equivalent"]] == [2] and not figures["survivors"]


@pytest.mark.medium
def test_going_on(tmp_path: Path) -> None:
    """Faults that are explained are not looked for again, on the same sources; others are."""
    faults = [Fault(n, "inv", "x[0]", ()) for n in range(1, 4)]
    drawn = Sample("9-7", preset("nano"), "", faults, [], "")
    found = [Found(faults[0], "program 0", "bytes", 0.5), Found(faults[1], ""), Found(faults[2], "", nothing=True)]
    file, parser = tmp_path / "found.json", argparse.ArgumentParser()
    assert kept(file, drawn, 7, 9) == [] and not left_open(file, drawn, 7, 9)
    write_with_command(file, parser, [], summary(drawn, 7, 9, found))
    assert kept(file, drawn, 7, 9) == [replace(found[0], how=""), found[2]] and left_open(file, drawn, 7, 9) == {2}
    assert kept(file, drawn, 8, 9) == kept(file, drawn, 7, 8) == kept(file, replace(drawn, text="other"), 7, 9) == []
