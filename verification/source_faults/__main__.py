"""Faults in the compiler's back end and in the native simulators, and which of them the tests find.

python -m verification.source_faults --python 100 --cpp 0 --json build/signoff/python_faults.json
python -m verification.source_faults --python 0 --cpp 50 --json build/signoff/cpp_faults.json
python -m verification.source_faults --only compiler/npu/views.py:104
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from verification.code import digest_of_code
from verification.measured import SOURCES, write_with_command
from verification.source_faults import CPP, PYTHON, cpp_faults, python_faults
from verification.source_faults.looks import of_the_compiler, of_the_simulators
from verification.source_faults.reviewed import reviewed
from verification.source_faults.run import Found, in_cpp, in_python

#: What the two kinds of faults are in, by the name of a part of the figures.
_PARTS = {"compiler/npu": PYTHON, "simulator/native": CPP}
Some = TypeVar("Some", python_faults.Fault, cpp_faults.Fault)


def drawn(faults: Iterable[Some], count: int, seed: int) -> list[Some]:
    """Returns a sample. Faults have places in it by their names alone: a change of the sources leaves the other ones
    there."""
    place = {fault: hashlib.sha256(f"{seed} {fault.name}".encode()).digest() for fault in faults}
    return sorted(place, key=place.__getitem__)[:count]


def _with(part: str, faults: Iterable[Some]) -> list[Some]:
    return [fault for fault in faults if part in fault.name or part in fault.where]


def summary(seed: int, found: Sequence[Found], reasons: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Figures, as JSON knows them, of each of the two that has faults.

    Args:
        reasons: why nothing finds a fault, by its name; those of `reviewed` by default.
    """
    reasons = reviewed() if reasons is None else reasons
    figures: dict[str, Any] = {"seed": seed}
    sources: list[Path] = []
    for name, files in _PARTS.items():
        here = [f for f in found if f.fault.path in files]
        if not here:
            continue
        sources += files
        left = [(f, reasons.get(f.fault.name, "")) for f in here if not f.by]
        figures[name] = {
            "faults": len(here),
            "found": len(here) - len(left),
            "seconds": round(sum(f.seconds for f in here)),
            "survivors": [_entry(f) | {"looks": f.looks} for f, reason in left if not reason],
            "reviewed": [_entry(f) | {"reason": reason} for f, reason in left if reason],
            SOURCES: digest_of_code(files),
            "each": {f.fault.name: (f.by, f.seconds, f.looks) for f in here},
        }
    return figures | {SOURCES: digest_of_code(sources)}


def kept(file: Path, faults: Iterable[Some], reasons: Mapping[str, str] | None = None) -> list[Found]:
    """Reads the faults that are found or explained from a file of `summary`, if it is of the same sources. The other
    ones are worth another look, by tests that there are now.

    Args:
        reasons: as for `summary`.
    """
    reasons = reviewed() if reasons is None else reasons
    if not file.is_file():
        return []
    figures, by_name = json.loads(file.read_text(encoding="utf-8")), {fault.name: fault for fault in faults}
    there = ((figures[name], files) for name, files in _PARTS.items() if name in figures)
    parts = [part for part, files in there if part[SOURCES] == digest_of_code(files)]
    each = [(name, found) for part in parts for name, found in part["each"].items() if name in by_name]
    return [Found(by_name[name], by, "", *rest) for name, (by, *rest) in each if by or name in reasons]


def _entry(found: Found) -> dict[str, Any]:
    return {"name": found.fault.name, "where": found.fault.where, "what": found.fault.what}


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m verification.source_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=int, default=100, help="faults in compiler/npu (default %(default)s)")
    parser.add_argument("--cpp", type=int, default=50, help="faults in simulator/native (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the samples (default %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="layers of each kind (default %(default)s, at most 8)")
    parser.add_argument("--programs", type=int, default=60, help="random programs (default %(default)s)")
    parser.add_argument("--only", metavar="PART", help="all faults with this in their name or place, in place of the "
                        "samples, with what finds them")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write the figures here, and go on where such a file of the same "
                        "sources has ended")  # fmt: skip
    options = parser.parse_args(arguments)
    python = [fault for path in PYTHON for fault in python_faults.faults_of(path)]
    cpp = [fault for path in CPP for fault in cpp_faults.faults_of(path)]
    if options.only is None:
        python, cpp = drawn(python, options.python, options.seed), drawn(cpp, options.cpp, options.seed)
    else:
        python, cpp = _with(options.only, python), _with(options.only, cpp)
        if not python and not cpp:
            parser.error(f"no fault has {options.only} in its name or place")
    found = [*kept(options.json, python), *kept(options.json, cpp)] if options.json and options.only is None else []
    known = {each.fault.name for each in found}
    python = [fault for fault in python if fault.name not in known]
    cpp = [fault for fault in cpp if fault.name not in known]
    clock, results = (list(of_the_simulators(options.programs, clock=kind)) for kind in (True, False))
    for each in itertools.chain(
        in_python(python, of_the_compiler(options.layers)) if python else (), in_cpp(cpp, clock, results) if cpp else ()
    ):
        found.append(each)
        if options.only is not None:
            print(f"name = '{each.fault.name}'\ncode = '{each.fault.code.strip()}'")
        if options.only is not None or not each.by:
            left = "not found, explained" if each.fault.name in reviewed() else f"NOT FOUND by {each.looks} looks"
            by = f"{each.by} {each.how}" if each.by else left
            print(f"{each.fault.where}: {each.fault.what}: {by}", flush=True)
        if options.json:  # after each, so that a run that is ended leaves what it has found out
            write_with_command(options.json, parser, arguments, summary(options.seed, found))
    for name, figures in summary(options.seed, found).items():
        if "/" in name:
            print(f"{name}: {figures['found']} of {figures['faults']} found, {figures['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
