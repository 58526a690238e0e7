"""Runs of several tokens: their rows of caches, tables and the embedding, without an op on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common import onnx_models
from tilewright import zoo
from tilewright.errors import InputError, UsageError
from tilewright.isa.program import Lookup, NpuStep, Program
from tilewright.zoo.llama import prompts

SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 2, "kv_heads": 1, "hidden": 64, "window": 32, "context": 80}
COUNT = 8  # tokens of a run


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build_quantized("micro_llama", whole=True, **SIZES)


@pytest.fixture(scope="module")
def program(model: onnx.ModelProto) -> Program:
    entries = {"prefill": {"input_ids": [1, COUNT]}, "decode": {"input_ids": [1, 1]}}
    return tw.compile_program(model, states="auto", entries=entries, rising=["position_ids"], cache=False)


def feeds(position: int, tokens: list[int]) -> dict[str, np.ndarray]:
    return {"input_ids": np.array([tokens]), "position_ids": position + np.arange(len(tokens))[None]}


@pytest.mark.medium
def test_prompts_and_tokens_have_onnxruntimes_logits(model: onnx.ModelProto, program: Program) -> None:
    """Each entry point is one turn, at places before and behind the end of the cache, with the same windows."""
    assert [type(step) for step in program.steps] == [NpuStep, NpuStep]
    assert program.rising == ["position_ids"] and len(program.windows) == len({w.region for w in program.windows})
    device = tw.Device("functional")
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    runs = [(0, COUNT), (8, COUNT), (16, 1), (17, COUNT), (25, 1), (40, COUNT), (48, 1), (72, COUNT)]
    for position, count in runs:
        given = feeds(position, [(29 * (position + i) + 95) % 96 for i in range(count)])
        outputs = onnx_models.run(model, given | state)
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        found = device.run(program, given, entry="prefill" if count > 1 else "decode")["logits"]
        np.testing.assert_array_equal(found, outputs["logits"], f"at {position}")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 6], "'position_ids' must rise by one, as it was compiled, not from 6 to 6"),
        ([7, 6, 5, 4, 3, 2, 1, 0], "must rise by one, as it was compiled, not from 7 to 6"),
        ([*range(25, 33)], r"'position_ids' goes round the 32 rows of a state: 25\.\.32; split it there"),
        ([*range(73, 81)], r"must be within 0\.\.79, not 80"),
    ],
)
def test_places_that_no_window_has(program: Program, places: list[int], problem: str) -> None:
    given = {"input_ids": np.zeros((1, COUNT), np.int64), "position_ids": np.array([places])}
    with pytest.raises(InputError, match=problem):
        tw.Device("functional").run(program, given, entry="prefill")


@pytest.mark.medium
def test_the_last_row_alone(model: onnx.ModelProto, program: Program) -> None:
    """The row is that of a whole run, of fewer products. Tokens below 0 count from the end, as Gather has it."""
    options: dict[str, Any] = {"shapes": {"input_ids": [1, COUNT]}, "states": "auto", "cache": False}
    short = tw.compile_program(model, rising=["position_ids"], last=["logits"], **options)
    assert [type(step) for step in short.steps] == [NpuStep] and short.macs < program.entry("prefill").macs * 0.8
    given = feeds(8, [5, 90, 11, 0, 0, 3, 41, 8])
    whole = tw.Device("functional").run(program, given, entry="prefill")["logits"]
    device = tw.Device("functional")
    np.testing.assert_array_equal(device.run(short, given)["logits"], whole[:, -1:])
    device.reset_state(short)
    from_the_end = given | {"input_ids": given["input_ids"] - 96}
    np.testing.assert_array_equal(device.run(short, from_the_end)["logits"], whole[:, -1:])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"last": ["present.0.key", "logit"]}, "'logit' has no last row: .*outputs: logits, present"),
        ({"rising": ["positions"]}, r"'positions' cannot rise: it is no input of integers \(those are input_ids, pos"),
    ],
)
def test_names_that_are_none(model: onnx.ModelProto, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        tw.compile_program(model, shapes={"input_ids": [1, COUNT]}, cpu_only=True, cache=False, **options)


@pytest.mark.medium
def test_lookups_that_do_not_fit(program: Program, tmp_path: Path) -> None:
    """A file that was changed is refused."""
    (found,) = program.lookups
    assert found.tensor == "input_ids" and found.rows == 96 and found.entry == "prefill"
    program.check()
    for wrong in ({"rows": 1 << 30}, {"tensor": "position"}, {"block": 7}, {"buffer": "nothing"}):
        fields = {name: getattr(found, name) for name in Lookup.__dataclass_fields__} | wrong
        changed = Program(**{**vars(program), "lookups": [Lookup(**fields)]})
        with pytest.raises(ValueError, match="a lookup of"):
            changed.check()
    program.save(tmp_path / "program.twp")
    again = Program.load(tmp_path / "program.twp")
    assert again.lookups == program.lookups and again.rising == program.rising
