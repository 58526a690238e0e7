"""The proofs that take seconds, and that properties fail once their part is broken. `make formal` runs all of both."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.common.paths import ROOT
from verification.formal import solver
from verification.formal.boards.proofs import PROOFS as BOARDS
from verification.formal.engine import Cut, FormalError, models
from verification.formal.proof import faults_not_found, prove, table
from verification.formal.proofs import PROOFS as NPU

FEW_CYCLES = 20
PROOFS = NPU + BOARDS
BY_NAME = {proof.name: proof for proof in PROOFS}
WITHOUT_FAULTS = ("constants", "register_reads")  # all that they are about is tied


@pytest.mark.slow
@pytest.mark.parametrize("proof", [p for p in PROOFS if p.quick], ids=lambda p: p.name)
def test_holds(proof) -> None:
    prove(proof)


def _first_on_each_bench() -> Iterator[Any]:
    """Yields the proofs. One of several machines is enough here: a bench that an earlier proof has is for long tests.

    It looks at no properties, for which each process would have to elaborate every bench before its first test.
    """
    known: set[Any] = set()
    for proof in PROOFS:
        bench: Any = proof.bench
        while isinstance(bench, functools.partial):
            bench = bench.func
        yield pytest.param(proof, id=proof.name, marks=() if proof.quick and bench not in known else pytest.mark.long)
        known.update([bench] if proof.quick else ())


@pytest.mark.slow
@pytest.mark.parametrize("proof", _first_on_each_bench())
def test_finds_its_faults(proof) -> None:
    """Faults that show within a few cycles of reset are found."""
    names = [p.name for p in proof.properties if p.fault and p.fault.depth <= FEW_CYCLES]
    assert bool(names) == (proof.name not in WITHOUT_FAULTS)
    assert faults_not_found(proof, names) == []


@pytest.mark.medium
def test_documented() -> None:
    text = (ROOT / "docs" / "verification" / "formal.md").read_text(encoding="utf-8")
    assert table(NPU) in text and table(BOARDS) in text
    assert len(BY_NAME) == len(PROOFS)


@pytest.mark.medium
def test_a_net_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FormalError, match=r"^yosys failed: .*no_such_net"):
        models([(BY_NAME["queue"].bench(None).rtlil(), Cut("queue.no_such_net"))], tmp_path)


@pytest.mark.medium
def test_yosys_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FormalError, match=r"^yosys failed: ") as info:
        models([("nonsense", None)], tmp_path)
    assert "\n" not in str(info.value)


def test_terms_are_split() -> None:
    assert solver.terms("(f |a b| (g x)) |c (| y") == ["(f |a b| (g x))", "|c (|", "y"]


def test_commands_are_split_at_brackets() -> None:
    text = ["; comment (\n", "(push 1)\n", "(assert (= x\n", "  #b0))\n", "\n", "(check-sat)\n"]
    assert list(solver.commands(iter(text))) == ["(push 1)", "(assert (= x\n  #b0))", "(check-sat)"]


def test_terms_are_split_at_spaces_outside_of_brackets() -> None:
    assert list(solver.terms("a (f (g b) c)  |d (e| ")) == ["a", "(f (g b) c)", "|d (e|"]
