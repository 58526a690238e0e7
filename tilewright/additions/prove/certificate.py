"""Certificates: what was proved of a program, in its file, with what a check of it needs of the compiler.

A check imports the model and runs the trusted passes, takes the nodes of the CPU steps from the certificate, and proves
the program again. A contract of import-linter holds it to that: it runs nothing of the compiler behind the front end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tilewright.api.source import ModelSource
from tilewright.common import store
from tilewright.errors import UsageError
from tilewright.isa.program import Certificate, Program, ProgramError, Proof
from tilewright.prove import plain_text
from tilewright.prove.checker.compare import Verdict
from tilewright.prove.checker.graph import QuantisedGraph, Step, Value
from tilewright.prove.entries import prove_all
from tilewright.prove.imported import TRUSTED, plain_graph, trusted_graph

_TRUSTED = ",".join(each.name for each in TRUSTED)


def certificate(
    source: ModelSource, program: Program, graphs: Mapping[str, QuantisedGraph], verdicts: Mapping[str, Verdict]
) -> Certificate:
    """The certificate of a program that was proved.

    Args:
        source: a file.
        graphs, verdicts: by the name of the entry point.
    """
    assert isinstance(source.model, Path)
    proofs = {
        name: Proof(
            verdict.elements, verdict.instructions, verdict.accesses, verdict.conversions, len(verdict.opaque),
            dict(verdict.assumed), verdict.seed, _work(graphs[name]),
        )
        for name, verdict in verdicts.items()
    }  # fmt: skip
    states = source.states if isinstance(source.states, str) else dict(source.states or {}) or ""
    digests = _digest(source.model), program.config.fingerprint, program.content_hash(), checker_digest()
    return Certificate(*digests, _TRUSTED, states, proofs, list(source.last))


def checker_digest() -> str:
    """Names the sources of the checker and of the semantics that it evaluates."""
    return store.sources_digest("additions/prove/checker/*", "isa/*")


def recheck(model: Path, program: Program, seed: int | None = None) -> dict[str, Verdict]:
    """Proves a program again by its certificate, without the compiler behind the front end.

    Raises:
        UsageError: it has no certificate, or one of another model, program or front end.
        ProgramError: the certificate is damaged.
        CompileError: the model cannot be imported.
    """
    found = program.certificate
    if found is None:
        raise UsageError(f"{program.name} has no certificate: compile it with --prove, or `prove` its model with it")
    expected = {
        "model": _digest(model), "config": program.config.fingerprint, "program": program.content_hash(),
        "trusted": _TRUSTED,
    }  # fmt: skip
    called = {"model": f"another model than {model}", "config": "another configuration", "program": "another program"}
    for name, value in expected.items():
        if getattr(found, name) != value:
            raise UsageError(
                f"the certificate of {program.name} is of {called.get(name, 'another front end: compile again')}"
            )
    if set(found.proofs) != ({entry.name for entry in program.entries} or {""}):
        raise ProgramError(f"the certificate of {program.name} has proofs of other entry points than the program")
    graphs = {name: _graph(model, found, program.entry(name or None), proof) for name, proof in found.proofs.items()}
    try:
        verdicts = prove_all(graphs, program, seed)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ProgramError(f"the certificate of {program.name} is damaged: its nodes cannot be evaluated "
                           f"({type(error).__name__}: {error})") from None  # fmt: skip
    for name, verdict in verdicts.items():
        said = found.proofs[name]
        if verdict.proved and (said.elements, said.opaque) != (verdict.elements, len(verdict.opaque)):
            raise ProgramError(
                f"the certificate of {program.name} claims {said.elements} output elements and {said.opaque} unknown "
                f"functions, the proof has {verdict.elements} and {len(verdict.opaque)}"
            )
    return verdicts


def _digest(model: Path) -> str:
    return hashlib.sha256(store.read(model)).hexdigest()


def _graph(model: Path, claim: Certificate, program: Program, proof: Proof) -> QuantisedGraph:
    """The graph that a program is to compute, and the nodes of its CPU steps."""
    shapes = {t.name: tuple(t.shape) for t in program.inputs}
    shapes |= {state.name: tuple(state.begin.shape) for state in program.states} if claim.states else {}
    source = ModelSource(model, shapes, states=claim.states or None, last=claim.last)
    graph = plain_graph(trusted_graph(source))
    steps, values = _read_work(proof.work, program.name)
    known = dict(graph.values) | values
    for step in (step for nodes in steps.values() for step in nodes):
        missing = [name for name in (*step.inputs, *step.outputs) if name and name not in known]
        if missing:
            raise ProgramError(f"the certificate of {program.name} is damaged: {step.name} has {missing[0]!r}, which "
                               "neither it nor the model has")  # fmt: skip
    return replace(graph, work=steps, work_values=known)


def _work(graph: QuantisedGraph) -> str:
    """The nodes of the CPU steps as text, with the tensors of them that the graph does not have, or has otherwise."""
    steps = [
        (number, [(s.op, s.name, s.inputs, s.outputs, dict(s.attributes)) for s in nodes])
        for number, nodes in graph.work.items()
    ]
    used = {name for nodes in graph.work.values() for s in nodes for name in (*s.inputs, *s.outputs)} - {""}
    new = [n for n in sorted(used) if not _same(graph.values.get(n), graph.work_values[n])]
    values = [(n, *_parts(graph.work_values[n])) for n in new]
    return plain_text.write((steps, values))


def _parts(value: Value) -> tuple[object, ...]:
    return value.shape, value.dtype.name, value.data, value.scale, value.zero_point, value.axis


def _same(a: Value | None, b: Value) -> bool:
    return a is not None and all(
        x is y or (x is not None and y is not None and np.array_equal(np.asarray(x), np.asarray(y)))
        for x, y in zip(_parts(a), _parts(b), strict=True)
    )


def _read_work(text: str, where: str) -> tuple[dict[int, tuple[Step, ...]], dict[str, Value]]:
    try:
        steps, values = plain_text.read(text)
        return (
            {number: tuple(Step(*parts) for parts in nodes) for number, nodes in steps},
            {name: Value(shape, plain_text.dtype(kind), *rest) for name, shape, kind, *rest in values},
        )
    except (TypeError, ValueError) as error:
        raise ProgramError(f"the certificate of {where} is damaged: {error}") from None
