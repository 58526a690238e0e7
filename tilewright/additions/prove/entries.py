"""Proofs of all entry points of a program, and their sum."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tilewright.isa.program import Program
from tilewright.prove.checker.compare import Verdict, prove
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.difference import locate


def prove_all(graphs: Mapping[str, QuantisedGraph], program: Program, seed: int | None = None) -> dict[str, Verdict]:
    """Proofs by the name of the entry point, "" in a program without; see `prove`.

    Args:
        seed: of the names; None for a new one.
    """
    chosen = secrets.randbits(63) if seed is None else seed
    verdicts = {name: prove(graph, program, chosen, name) for name, graph in graphs.items()}
    for name, verdict in verdicts.items():
        locate(graphs[name], program, verdict, name)
    return verdicts


def joined(verdicts: Mapping[str, Verdict]) -> Verdict:
    """One verdict for all: sums, and reason and difference of the first that is not proved."""
    failed = next((name for name, verdict in verdicts.items() if not verdict.proved), None)
    chosen = verdicts[failed if failed is not None else next(iter(verdicts))]
    rules, assumed = Counter[str](), Counter[str]()
    for verdict in verdicts.values():
        rules.update(verdict.rules)
        assumed.update(verdict.assumed)
    sums = ("elements", "instructions", "cpu_steps", "conversions", "accesses")
    return replace(
        chosen,
        reason=f"entry point {failed}: {chosen.reason}" if failed else chosen.reason,
        opaque=[name for verdict in verdicts.values() for name in verdict.opaque],
        rules=dict(rules),
        assumed=dict(assumed),
        **{name: sum(getattr(verdict, name) for verdict in verdicts.values()) for name in sums},
    )
