"""Faults in the compiler's back end and in the native simulators, and which of them the tests find.

python -m tests.source_faults --python 100 --cpp 0 --json build/signoff/python_faults.json
python -m tests.source_faults --python 0 --cpp 50 --json build/signoff/cpp_faults.json
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from common.measured import SOURCES, digest_of_sources, write_with_command
from tests.source_faults import CPP, PYTHON, cpp_faults, python_faults
from tests.source_faults.looks import of_the_compiler, of_the_simulators
from tests.source_faults.run import Found, in_cpp, in_python

Some = TypeVar("Some", python_faults.Fault, cpp_faults.Fault)


def drawn(faults: Iterable[Some], count: int, seed: int) -> list[Some]:
    """A sample. Faults have places in it by their names alone: a change of the sources leaves the other ones there."""
    place = {fault: hashlib.sha256(f"{seed} {fault.name}".encode()).digest() for fault in faults}
    return sorted(place, key=place.__getitem__)[:count]


def summary(seed: int, found: Sequence[Found]) -> dict[str, Any]:
    """Figures, as JSON knows them, of each of the two that has faults."""
    figures: dict[str, Any] = {"seed": seed}
    sources: list[Path] = []
    for name, files in (("compiler/npu", PYTHON), ("simulator/native", CPP)):
        here = [f for f in found if f.fault.path in files]
        if not here:
            continue
        sources += files
        left = [f for f in here if not f.by]
        figures[name] = {
            "faults": len(here),
            "found": len(here) - len(left),
            "seconds": round(sum(f.seconds for f in here)),
            "survivors": [{"where": f.where, "what": f.fault.what, "looks": f.looks} for f in left],
        }
    return figures | {SOURCES: digest_of_sources(sources)}


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.source_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=int, default=100, help="faults in compiler/npu (default %(default)s)")
    parser.add_argument("--cpp", type=int, default=50, help="faults in simulator/native (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the samples (default %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="layers of each kind (default %(default)s, at most 8)")
    parser.add_argument("--programs", type=int, default=60, help="random programs (default %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    python = drawn((f for path in PYTHON for f in python_faults.faults_of(path)), options.python, options.seed)
    cpp = drawn((f for path in CPP for f in cpp_faults.faults_of(path)), options.cpp, options.seed)
    clock, results = (list(of_the_simulators(options.programs, clock=kind)) for kind in (True, False))
    found: list[Found] = []
    for each in itertools.chain(
        in_python(python, of_the_compiler(options.layers)) if python else (), in_cpp(cpp, clock, results) if cpp else ()
    ):
        found.append(each)
        if not each.by:
            print(f"{each.where}: {each.fault.what}: NOT FOUND by {each.looks} looks", flush=True)
        if options.json:  # after each, so that a run that is ended leaves what it has found out
            write_with_command(options.json, parser, arguments, summary(options.seed, found))
    for name, figures in summary(options.seed, found).items():
        if "/" in name:
            print(f"{name}: {figures['found']} of {figures['faults']} found, {figures['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
