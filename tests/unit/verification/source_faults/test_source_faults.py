"""Faults in sources are what they say, and are found; of a small sample as many as when this was written."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from verification.source_faults import CPP, PYTHON, cpp_faults, python_faults
from verification.source_faults.__main__ import _PARTS, drawn, kept, main, summary
from verification.source_faults.looks import Look, of_the_compiler, of_the_simulators
from verification.source_faults.reviewed import read_reviewed, reviewed
from verification.source_faults.run import NO_FAULT, Found, in_cpp, in_python

#: Faults of the sample of this test, how many at least are found, and how many may be left of those that a golden text
#: runs. The sample changes only where the sources do.
SAMPLE, LEAST, MOST = 16, 4, 6

_SOURCE = '''import functools

def one(a, b=True):
    """Two."""
    if not a:
        raise ValueError(1 + 2)
    print(min(a, 3))
    return [x for x, _ in zip(range(a), range(a), strict=True) if x < 2 and b]

class Other:
    @functools.cache
    def two(self):
        return 1
'''
_CHANGES = [
    ("one", 5, "not -> nothing"), ("one", 7, "call left out"), ("one", 7, "min -> max"),
    ("one", 7, "3 -> 4"), ("one", 8, "And -> Or"), ("one", 8, "Lt -> LtE"), ("one", 8, "2 -> 3"),
    ("Other.two", 13, "1 -> 2"),
]  # fmt: skip


@pytest.mark.medium
def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can be changed is; messages and types are left alone; what was kept of the result is forgotten."""
    path = tmp_path / "with_faults.py"
    path.write_text(_SOURCE)
    faults = python_faults.faults_of(path)
    assert [(f.function, f.line, f.what) for f in faults] == _CHANGES
    monkeypatch.setattr(python_faults, "ROOT", tmp_path)
    monkeypatch.setattr("verification.source_faults.run.ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "with_faults", raising=False)
    module = importlib.import_module("with_faults")
    looks = [
        Look("two", lambda: "" if module.Other.two(0) == 1 else "not 1"),
        Look("one", lambda: "" if module.one(5) == [0, 1] else "another list"),
    ]
    found = list(in_python(faults, looks))
    left = {f.fault.what for f in found if not f.by}
    assert left == {"call left out", "min -> max", "3 -> 4"}
    assert {f.fault.what: f.how for f in found}["not -> nothing"].startswith("ValueError")
    assert (found[-1].by, found[-1].how, found[-1].looks) == ("two", "not 1", 1)
    assert module.one(5) == [0, 1] and module.Other.two(0) == 1  # not in this process


def test_cpp(tmp_path: Path) -> None:
    path = tmp_path / "x.h"
    path.write_text(
        '#define A 1 + 2\n// 1 + 2\nint f(int *a, int b) { return b <= 10u ? a[3] : g("4 + 5") << b; } // 7\n'
    )
    faults = cpp_faults.faults_of(path)
    assert [(f.line, f.what) for f in faults] == [(3, "<= -> <"), (3, "10 -> 11"), (3, "3 -> 4"), (3, "<< -> >>")]
    assert faults[1].text() == path.read_text().replace("10u", "11u")
    assert len({f.name for f in faults}) == len(faults)


def test_samples_stay() -> None:
    """A fault less changes no other one; the sources have many."""
    faults = [f for path in PYTHON[:3] for f in python_faults.faults_of(path)]
    assert len({f.name for f in faults}) == len(faults)
    some = drawn(faults, 5, 1)
    assert drawn([f for f in faults if f != some[0]], 4, 1) == some[1:] and drawn(faults, 5, 2) != some
    every = [f for path in CPP if path.name != "codes.h" for f in cpp_faults.faults_of(path) or [None]]
    assert all(every) and len({f.name for f in every if f}) == len(every)  # also where two lines are the same


@pytest.mark.medium
def test_summary() -> None:
    fault = python_faults.Fault(PYTHON[0], "f", 0, 7, "1 -> 2")
    other = cpp_faults.Fault(CPP[0], 3, "x + 1", 4, "1", "2")
    assert summary(4, []).keys() == {"seed", "sources"}
    found = Found(other, "", "", 1.2, 5)
    figures = summary(4, [Found(fault, "golden x", "another text", 0.4, 9), found])
    counts = {"faults": 1, "found": 1, "seconds": 0, "survivors": [], "reviewed": []}
    assert counts.items() <= figures["compiler/npu"].items()
    survivor = {"name": other.name, "where": f"simulator/native/{CPP[0].name}:3", "what": "1 -> 2"}
    assert figures["simulator/native"]["survivors"] == [survivor | {"looks": 5}]
    explained = summary(4, [found], {other.name: "nobody calls it"})["simulator/native"]
    assert explained["reviewed"] == [survivor | {"reason": "nobody calls it"}] and not explained["survivors"]


@pytest.mark.medium
def test_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults found or explained are not tried again in the same sources; those left open are."""
    python = [python_faults.Fault(PYTHON[0], "f", index, 7, "1 -> 2") for index in range(3)]
    cpp = cpp_faults.Fault(CPP[0], 3, "x + 1", 4, "1", "2")
    some = [Found(python[0], "golden x", "", 0.4, 9), Found(python[1], "", "", 2.0, 8), Found(cpp, "", "", 1.2, 5)]
    file = tmp_path / "found.json"
    assert kept(file, [*python, cpp]) == []
    file.write_text(json.dumps(summary(4, some)))
    assert kept(file, [*python, cpp]) == some[:1] and kept(file, python[1:]) == []
    reasons = {cpp.name: "nobody calls it"}
    assert kept(file, [*python, cpp], reasons) == [some[0], some[2]]
    monkeypatch.setitem(_PARTS, "compiler/npu", PYTHON[:-1])  # other sources
    assert kept(file, [*python, cpp], reasons) == some[2:]


def test_looked_into_by_hand(tmp_path: Path) -> None:
    """Explanations are of faults that are in the sources, and of the lines that somebody has seen."""
    reviewed()  # those there are
    python, cpp = python_faults.faults_of(PYTHON[-1])[0], cpp_faults.faults_of(CPP[-1])[0]
    entry = lambda fault, code: f"[[fault]]\nname = {fault.name!r}\ncode = {code!r}\nreason = 'It\tis so.'\n"
    good = entry(python, python.code.strip()) + entry(cpp, cpp.code.strip())
    path = tmp_path / "some.toml"
    path.write_text(good)
    assert read_reviewed(path) == {python.name: "It is so.", cpp.name: "It is so."}
    other = replace(python, index=10_000)
    for wrong, why in (
        (entry(other, "x"), f"some.toml: {other.name}: no fault has this name"),
        (good + good, "twice"),
        (entry(cpp, "another line"), "without `another line`"),
    ):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=re.escape(why)):
            read_reviewed(path)


@pytest.mark.medium
def test_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All faults of one place, with what finds them."""
    monkeypatch.setattr("verification.source_faults.__main__.of_the_compiler", lambda _: [])
    monkeypatch.setattr("verification.source_faults.run._own", lambda _: None)
    wanted = python_faults.faults_of(PYTHON[-1])[0]
    assert main(["--only", wanted.name]) == 0
    assert capsys.readouterr().out.startswith(
        f"name = '{wanted.name}'\ncode = '{wanted.code.strip()}'\n{wanted.where}: "
    )
    with pytest.raises(SystemExit):
        main(["--only", "no such place"])
    assert "no fault has no such place in its name or place" in capsys.readouterr().err


@pytest.mark.slow
def test_faults_of_the_compiler_are_found() -> None:
    """The golden texts alone, which take no time, find enough faults."""
    faults = drawn((f for path in PYTHON for f in python_faults.faults_of(path)), SAMPLE, 1)
    looks = [look for look in of_the_compiler(0) if look.name.startswith("golden")]
    found = list(in_python(faults, looks, own=False))
    left = [f"{f.fault.where}: {f.fault.what}" for f in found if not f.by and f.looks]
    assert len(left) <= MOST, left
    assert sum(bool(f.by) for f in found) >= LEAST


@pytest.mark.slow
def test_faults_of_the_simulators_are_found() -> None:
    """A counter, and words of instructions; what does not compile, or to the same, is no fault."""
    folder = CPP[0].parent
    line = lambda name, part: next(f for f in cpp_faults.faults_of(folder / name) if part in f.code)
    faults = [line("gemm.h", "r_.macs += steps"), line("cycle_fetch.h", "parts - 1 ? 0")]
    first = (folder / "cycle.h").read_text().splitlines()[0]
    none = [cpp_faults.Fault(folder / "cycle.h", 1, first, 0, "//", new) for new in ("no", "///")]
    none.append(line("gemm.h", "Walker<3> outer"))
    looks = [list(of_the_simulators(6, clock=clock))[:6] for clock in (True, False)]
    found = list(in_cpp([*faults, *none], *looks, own=False))
    assert [f.fault for f in found] == faults and all(f.by and f.by != NO_FAULT for f in found)
