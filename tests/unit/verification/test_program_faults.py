"""The campaign of faults in compiled programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.reference.random_quantized import random_quantized_graph
from tilewright.isa.encoding import Op, from_bytes, to_bytes
from tilewright.isa.program import Program
from verification.program_faults import __main__ as command
from verification.program_faults import judge as judging
from verification.program_faults import sources
from verification.program_faults.bounded import BoundedNames
from verification.program_faults.climb import extremes, levels
from verification.program_faults.faults import KINDS, fault
from verification.program_faults.judge import Subject, random_subject


@pytest.fixture(scope="module")
def case() -> Subject:
    found = random_subject(1033, 2)
    assert isinstance(found, Subject), found
    return found


def test_every_kind_of_fault_is_one_change(case: Subject) -> None:
    for kind in KINDS:
        made = [fault(Random(seed), case.program, kind) for seed in range(30)]
        assert any(made), kind
        for said, wrong in filter(None, made):
            assert said
            assert (wrong.instructions != case.program.instructions) != (wrong.constants != case.program.constants)
            assert len(wrong.instructions) == len(case.program.instructions)


def test_a_blind_prover_misses_faults(case: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = bytes(b ^ 64 for b in case.program.constants)
    wrong = replace(case.program, constants=constants)
    assert judging.judge(case, "constant", "all", wrong, 1).found == "shown"
    assert judging.judge(case, "constant", "none", case.program, 1).found == "same"
    right = judging.prove(case.graph, case.program, 1)
    monkeypatch.setattr(judging, "prove", lambda *_: right)
    assert judging.judge(case, "constant", "all", wrong, 1).found == "missed"


@pytest.mark.medium
def test_inputs_that_climb_show_what_others_do_not() -> None:
    """A convolution whose sums round to 0 for most inputs hides a fault from these."""
    found = random_subject(8032, 3)
    assert isinstance(found, Subject), found
    ops = from_bytes(found.program.instructions)
    at = next(i for i, op in enumerate(ops) if op.name == "GEMM_LOOP" and op["count"] == 3)
    ops[at] = Op(ops[at].instruction, ops[at].values | {"count": 1})
    wrong = replace(found.program, instructions=to_bytes(ops))
    assert not judging.shown(found, wrong)
    judged = judging.judge(found, "field", "count 1", wrong, 1)
    assert judged.found == "shown"
    assert judged.shown.startswith("input that climbs")


def turned(case: Subject, byte: int, bit: int) -> Program:
    """The program with another bit of its constants."""
    data = bytearray(case.program.constants)
    data[byte] ^= 1 << bit
    return replace(case.program, constants=bytes(data))


@pytest.mark.medium
@pytest.mark.parametrize(("seed", "byte", "bit", "inputs"), [(4120, 255, 1, levels), (5148, 794, 0, extremes)])
def test_inputs_of_which_one_shows_a_fault(
    seed: int, byte: int, bit: int, inputs: Callable[[Program], Iterator[tuple[str, dict[str, np.ndarray]]]]
) -> None:
    """One sum of 8,161 that a row can have, and a sum that is next to a tie in one of 300 inputs."""
    found = random_subject(seed, 1)
    assert isinstance(found, Subject), found
    found = replace(found, inputs=dict(inputs(found.program)), wanted=[])
    found.wanted.extend(found.run(found.program, number) for number in range(len(found.inputs)))
    assert judging.shown(found, turned(found, byte, bit))
    assert not judging.shown(found, found.program)
    assert not judging.prove(found.graph, turned(found, byte, bit), 1, kind=BoundedNames).proved


def test_ranges_of_its_own_sums_prove_a_program_whose_other_weight_changes_nothing(case: Subject) -> None:
    found = random_subject(1814, 1)
    assert isinstance(found, Subject), found
    wrong = turned(found, 1, 5)
    assert not judging.prove(found.graph, wrong, 1).proved
    assert judging.prove(found.graph, wrong, 1, kind=BoundedNames).proved
    assert judging.judge(found, "constant", "bit 5", wrong, 1).found == "same"
    random, shown = Random(3), 0
    while shown < 8:
        made = fault(random, case.program, "constant")
        if made is not None and judging.shown(case, made[1]):
            shown += 1
            assert not judging.prove(case.graph, made[1], 1, kind=BoundedNames).proved, made[0]


def test_bytes_that_nobody_stored_are_seen() -> None:
    """A program without a STORE leaves what memory had before, be it right by chance where that is 0."""
    found = random_subject(6891, 1)
    assert isinstance(found, Subject), found
    made = filter(None, (fault(Random(seed), found.program, "drop") for seed in range(500)))
    wrong = next(program for said, program in made if said.startswith("instruction 33 (STORE)"))
    assert judging.shown(found, wrong)


@pytest.mark.medium
def test_the_command_finds_none_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "MACHINES", ("tiny",))
    arguments = ["--count", "10", "--graphs", "1", "--inputs", "2"]
    assert command.main([*arguments, "--json", str(tmp_path / "found.json")]) == 0
    figures = json.loads((tmp_path / "found.json").read_text())
    assert figures["counts"]["shown"] + figures["counts"]["order"] == 10
    assert "0 missed" in capsys.readouterr().out
    assert command.main([*arguments, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == figures["faults"]


def test_faults_of_sources_are_found_by_what_they_change(case: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judging.prove(case.graph, case.program, 1)
    right = verdict.elements, verdict.accesses
    wrong = replace(case.program, constants=bytes(b ^ 64 for b in case.program.constants))
    assert sources._of_checker(case.graph, case.program, "", right) == ""
    assert sources._of_checker(case.graph, wrong, "", None) == ""
    assert sources._of_checker(case.graph, wrong, "", right).startswith("not proved")
    assert sources._of_checker(case.graph, case.program, "", None) == "a program with a fault is proved"
    model = random_quantized_graph(1033).model.SerializeToString()
    assert sources._of_compiler(case, model) == ""
    monkeypatch.setattr(sources.tw, "compile_program", lambda *_, **__: wrong)
    assert sources._of_compiler(case, model).startswith("rejected: not proved")
