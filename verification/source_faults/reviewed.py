"""Faults that nothing finds, with what somebody has found out about them who has looked into them."""

from __future__ import annotations

import functools
import itertools
import tomllib
from pathlib import Path

from tests.common.paths import ROOT
from verification.source_faults import CPP, PYTHON, cpp_faults, python_faults

REVIEWED = Path(__file__).with_name("reviewed.toml")


@functools.cache
def reviewed() -> dict[str, str]:
    """Reasons why nothing finds a fault, by the names of faults."""
    return read_reviewed(REVIEWED)


def read_reviewed(path: Path) -> dict[str, str]:
    """Reads the reasons from a file.

    Raises:
        ValueError: a name is that of no fault in the sources, or is there twice; `code` is not in the fault's line,
            which is thus another one than somebody has looked into.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("fault", [])
    wanted = {entry["name"].split()[0] for entry in entries}
    faults: dict[str, python_faults.Fault | cpp_faults.Fault] = {}
    for source in itertools.chain(PYTHON, CPP):
        if {source.name, str(source.relative_to(ROOT))} & wanted:  # what names begin with
            kind = python_faults if source.suffix == ".py" else cpp_faults
            faults |= {fault.name: fault for fault in kind.faults_of(source)}
    reasons: dict[str, str] = {}
    for name, code, reason in ((entry["name"], entry["code"], entry["reason"]) for entry in entries):
        if name in reasons or name not in faults:
            raise ValueError(f"{path.name}: {name}: {'twice' if name in reasons else 'no fault has this name'}")
        if code not in faults[name].code:
            raise ValueError(f"{path.name}: {name}: the line is `{faults[name].code.strip()}`, without `{code}`")
        reasons[name] = " ".join(reason.split())
    return reasons
