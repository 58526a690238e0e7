"""The proofs that take seconds, and that properties fail once their part is broken. `make formal` runs all of both."""

from pathlib import Path

import pytest

from hw.formal import solver
from hw.formal.engine import FormalError, Model
from hw.formal.proofs import PROOFS, Fault, broken, finds_fault, prove, table
from hw.queue import Queue
from tests.common.paths import ROOT

FEW_CYCLES = 20


@pytest.mark.slow
@pytest.mark.parametrize("proof", [p for p in PROOFS if p.quick], ids=lambda p: p.name)
def test_holds(proof) -> None:
    prove(proof)


@pytest.mark.slow
@pytest.mark.parametrize(
    "proof, name",
    [
        pytest.param(p, q.name, id=f"{p.name}-{q.name}")
        for p in PROOFS
        for q in p.properties
        if q.fault.depth <= FEW_CYCLES
    ],
)
def test_finds_its_fault(proof, name) -> None:
    assert finds_fault(proof, name)


def test_documented() -> None:
    assert table() in (ROOT / "docs" / "formal.md").read_text(encoding="utf-8")


def test_a_fault_is_gone_afterwards() -> None:
    before = Queue.elaborate
    with broken(Fault("hw.queue:Queue", "self.o_payload.eq(read.data)", "self.o_payload.eq(0)")):
        assert Queue.elaborate is not before
    assert Queue.elaborate is before
    with pytest.raises(FormalError, match="is there 0 times"), broken(Fault("hw.queue:Queue", "no such text", "")):
        pass


def test_yosys_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FormalError, match=r"^yosys failed: ") as info:
        Model("nonsense", tmp_path)
    assert "\n" not in str(info.value)


def test_commands_are_split_at_brackets() -> None:
    text = ["; comment (\n", "(push 1)\n", "(assert (= x\n", "  #b0))\n", "\n", "(check-sat)\n"]
    assert list(solver.commands(iter(text))) == ["(push 1)", "(assert (= x\n  #b0))", "(check-sat)"]
