"""Faults in sources: of the compiler, which the prover rejects where an input shows them, and of the checker itself.

    python -m verification.program_faults.sources --compiler 100 --checker 100
    python -m verification.program_faults.sources --compiler 0 --checker 1000 --only memories.py

A fault of `compiler/npu` counts if the program that it makes of a digit or of a random graph has other outputs than
without. A fault of the checker is found if it does not prove what is right any more, or proves a program with a fault
that an input shows. Those that nothing finds are listed: to be looked into, as many change no name, only time.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import tilewright as tw
from tests.common.paths import ROOT
from tests.reference.random_quantized import random_quantized_graph
from tilewright import zoo
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.common.store import sources_digest
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Program
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.compiled import quantised_graph, quantised_graphs
from verification.measured import SOURCES, write_with_command
from verification.program_faults.__main__ import DIGITS, judged
from verification.program_faults.judge import Subject, shown, subject
from verification.source_faults import PYTHON, python_faults
from verification.source_faults.__main__ import drawn
from verification.source_faults.looks import Look
from verification.source_faults.run import Found, in_python

CHECKER = sorted((ROOT / "tilewright" / "additions" / "prove" / "checker").glob("*.py"))
#: A decoder whose caches and tables are rows that the runtime picks.
_LLAMA = {"layers": 1, "width": 96, "heads": 3, "kv_heads": 1, "hidden": 64, "window": 32, "context": 64, "whole": True}


def subjects(graphs: int, inputs: int) -> Iterator[tuple[Subject, Path | bytes]]:
    """Proved programs with their models: of the digits, a layer of BERT, and random graphs on presets in turns."""
    presets, seed = sorted(PRESETS), 0
    small: dict[str, Any] = {**zoo.ZOO["bert"].small, "layers": 1}
    bert = zoo.build_quantized("bert", **small).SerializeToString()
    cases: list[tuple[str, Path | bytes, str]] = [("digits", DIGITS, config) for config in ("tiny", "base")]
    cases.append(("bert", bert, "base"))
    while len(cases) < graphs + 3:
        model = random_quantized_graph(seed).model
        cases.append((f"graph{seed}", model if isinstance(model, bytes) else model.SerializeToString(),
                      presets[seed % len(presets)]))  # fmt: skip
        seed += 1
    for name, model, config in cases:
        found = subject(name, model, config, inputs)
        assert isinstance(found, Subject), f"{name} on {config}: {found}"
        if found.program.instructions:
            yield found, model


def _language_model() -> Iterator[tuple[str, QuantisedGraph, Program]]:
    model = zoo.build_quantized("micro_llama", **_LLAMA).SerializeToString()  # type: ignore[arg-type]
    entries = {name: {"input_ids": [1, n]} for name, n in (("prefill", 32), ("decode", 1))}
    source = ModelSource(model, states="auto")
    graphs = quantised_graphs(source, PRESETS["base"], ProgramOptions().compiler, entries)
    program = tw.compile_program(model, "base", states="auto", entries=entries, cache=False)
    for entry, graph in graphs.items():
        yield entry, graph, program


def _of_compiler(case: Subject, model: Path | bytes) -> str:
    """The outcome of a fault in the compiler: "" if no input shows it."""
    program = tw.compile_program(model, case.program.config, tuning="off", cache=False)
    if not (seen := shown(case, program)):
        return ""
    graph = quantised_graph(ModelSource(model), program.config, ProgramOptions().compiler)
    verdict = prove(graph, program, 1)
    return f"missed: {seen}" if verdict.proved else f"rejected: {verdict.reason}; {seen}"


def _of_checker(graph: QuantisedGraph, program: Program, entry: str, right: tuple[int, int] | None) -> str:
    """The error in a verdict; `right` has elements and accesses of a proof, None for a program with a fault."""
    verdict = prove(graph, program, 1, entry)
    if right is None:
        return "a program with a fault is proved" if verdict.proved else ""
    counts = verdict.elements, verdict.accesses
    return "" if verdict.proved and counts == right else verdict.reason or f"counts {counts}, not {right}"


def looks(cases: Sequence[Subject], random: Random, faults: int) -> Iterator[Look]:
    """Looks for faults of the checker, with so many faulty programs that it has to reject."""
    good = [(case.name, case.graph, case.program, "") for case in cases]
    good += [(f"decoder {entry}", graph, program, entry) for entry, graph, program in _language_model()]
    for name, graph, program, entry in good:
        found = prove(graph, program, 1, entry)
        right = found.elements, found.accesses
        yield Look(name, functools.partial(_of_checker, graph, program, entry, right))
    by_name = {case.name: case for case in cases}
    wrong: list[tuple[str, Program]] = []
    for each in judged(cases, random, faults, lambda judgement, program: wrong.append((judgement.program, program))):
        assert each.found != "missed", each
    for number, (name, program) in enumerate(wrong):
        yield Look(f"fault {number} {name}", functools.partial(_of_checker, by_name[name].graph, program, "", None))


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 1 if the prover missed a fault of the compiler."""
    prog = "python -m verification.program_faults.sources"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", type=int, default=100, help="faults in compiler/npu (default %(default)s)")
    parser.add_argument("--checker", type=int, default=100, help="faults in the checker (default %(default)s)")
    parser.add_argument("--only", default="", metavar="PART", help="faults with this in their name")
    parser.add_argument("--graphs", type=int, default=10, help="random graphs (default %(default)s)")
    parser.add_argument("--programs", type=int, default=60, help="faulty programs (default %(default)s)")
    parser.add_argument("--inputs", type=int, default=3, help="random inputs (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the samples (default %(default)s)")
    parser.add_argument("--json", type=Path, help="write what became of each here")
    options = parser.parse_args(arguments)
    made = list(subjects(options.graphs, options.inputs))

    def sample(files: Sequence[Path], count: int) -> list[python_faults.Fault]:
        faults = (fault for path in files for fault in python_faults.faults_of(path) if options.only in fault.name)
        return drawn(faults, count, options.seed)

    compiler, checker = sample(PYTHON, options.compiler), sample(CHECKER, options.checker)
    counts: Counter[str] = Counter()
    each: list[dict[str, str]] = []

    def note(part: str, found: Found, fate: str) -> None:
        counts[f"{part}: {fate}"] += 1
        each.append({"part": part, "fault": found.fault.name, "fate": fate, "by": found.by, "how": found.how})
        if fate in ("missed", "not found"):
            print(f"{fate}: {found.fault.where}: {found.fault.what}: {found.fault.code.strip()}", flush=True)
        if options.json:
            sources = sources_digest("additions/prove/**/*", "isa/**/*", "compiler/**/*")
            figures = {SOURCES: sources, "counts": dict(counts), "each": each}
            write_with_command(options.json, parser, arguments, figures)

    of_compiler = [Look(case.name, functools.partial(_of_compiler, case, model)) for case, model in made]
    for found in in_python(compiler, of_compiler, own=False) if compiler else ():
        fates = ("rejected", "missed")
        shown_as = next((fate for fate in fates if found.how.startswith(fate)), "no program")
        note("compiler", found, shown_as if found.by else "no input shows it")
    of_checker = list(looks([case for case, _ in made], Random(options.seed), options.programs)) if checker else []
    for found in in_python(checker, of_checker, own=False) if checker else ():
        note("checker", found, "found" if found.by else "not found")
    print(json.dumps(counts, indent=2))
    return int(counts["compiler: missed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
