"""Conversations: turns, several on one device, going back, copies, and files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import zoo
from tilewright.errors import InputError, UsageError
from tilewright.generate import (
    LENGTH,
    STOP,
    Conversation,
    GreedyReference,
    LanguageModel,
    Sampler,
    load_state,
    save_state,
)
from tilewright.runtime.devices import Runner

DRAWN = Sampler(temperature=6.0, seed=2)
"""Random weights like one token best: draws make different ones."""


@pytest.fixture(scope="module")
def device(language: LanguageModel) -> Runner:
    return tw.Device("functional", language.program.config)


def made(conversation: Conversation, prompt: list[int], count: int) -> list[int]:
    return [step.token for step in conversation.generate(prompt, count, sampler=DRAWN)]


def alone(language: LanguageModel, device: Runner, prompt: list[int], count: int) -> list[int]:
    return made(Conversation(language, device), prompt, count)


@pytest.mark.medium
def test_several_take_turns(language: LanguageModel, device: Runner) -> None:
    """Token by token in turns, each makes what it makes alone, also behind the end of the cache."""
    prompts = [[5, 6, 7], [9], list(range(20))]
    wanted = [alone(language, device, prompt, 24) for prompt in prompts]
    assert len({tuple(tokens) for tokens in wanted}) == 3 and all(len(set(tokens)) > 4 for tokens in wanted)
    turns = [Conversation(language, device).generate(prompt, 24, sampler=DRAWN) for prompt in prompts]
    found: list[list[int]] = [[], [], []]
    for _ in range(24):
        for tokens, steps in zip(found, turns, strict=True):
            tokens.append(next(steps).token)
    assert found == wanted


@pytest.mark.medium
def test_a_turn_is_as_if_all_had_been_read_at_once(language: LanguageModel, device: Runner) -> None:
    conversation = Conversation(language, device)
    first = made(conversation, [5, 6, 7], 4)
    assert conversation.computed == 6  # not its last token
    second = made(conversation, [8, 9], 5)
    whole = [5, 6, 7, *first, 8, 9]
    assert second == alone(language, device, whole, 5)
    assert conversation.tokens == [*whole, *second]
    assert made(conversation, [], 3) == alone(language, device, [*whole, *second], 3)


@pytest.mark.medium
def test_going_back(language: LanguageModel, device: Runner) -> None:
    """First tokens stay within the cache; a cache that went round is computed anew."""
    conversation = Conversation(language, device)
    made(conversation, [5, 6, 7, 8], 6)
    conversation.follow([5, 6, 7, 20, 21])
    assert conversation.computed == 3 and made(conversation, [], 4) == alone(language, device, [5, 6, 7, 20, 21], 4)
    made(conversation, [], 20)
    assert conversation.computed > language.cache
    conversation.follow([5, 6, 30])
    assert conversation.computed == 0 and made(conversation, [], 4) == alone(language, device, [5, 6, 30], 4)


@pytest.mark.medium
def test_copies(language: LanguageModel, device: Runner) -> None:
    conversation = Conversation(language, device)
    first = made(conversation, [5, 6, 7, 8], 3)
    other = conversation.fork(3)
    assert other.tokens == [5, 6, 7] and other.computed == 3
    assert made(other, [40], 5) == alone(language, device, [5, 6, 7, 40], 5)
    assert made(conversation, [], 5) == alone(language, device, [5, 6, 7, 8, *first], 5)


@pytest.mark.medium
def test_stops(language: LanguageModel, device: Runner) -> None:
    steps = list(Conversation(language, device).generate([5, 6, 7], 9, sampler=DRAWN))
    assert [step.finish for step in steps] == [""] * 8 + [LENGTH]
    stop = steps[4].token
    end = [step.token for step in steps].index(stop) + 1
    again = list(Conversation(language, device).generate([5, 6, 7], 9, sampler=DRAWN, stop={stop}))
    assert [step.token for step in again] == [step.token for step in steps[:end]] and again[-1].finish == STOP


@pytest.mark.medium
def test_saved_and_loaded(language: LanguageModel, device: Runner, program_file: Path, tmp_path: Path) -> None:
    """A saved conversation goes on as if it had not been, in another process's copy of the program, too."""
    conversation = Conversation(language, device)
    made(conversation, [5, 6, 7], 20)
    save_state(tmp_path / "talk.npz", conversation, [{"role": "user", "content": "é"}])
    wanted = made(conversation, [8, 9], 6)
    copy = LanguageModel(tw.load(program_file, trust=True))
    for model in (language, copy):
        other = Conversation(model, device)
        assert load_state(tmp_path / "talk.npz", other) == [{"role": "user", "content": "é"}]
        assert made(other, [8, 9], 6) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("prefill", [None, 6])
def test_caches_in_the_memory_of_the_npu(prefill: int | None, tmp_path: Path) -> None:
    """A model in 8 bits as a whole: runs that begin again, files, and going back leave onnxruntime's logits."""
    model = zoo.build_quantized("micro_llama", **(zoo.ZOO["micro_llama"].small | {"whole": True}))
    language = LanguageModel.load(model, "base", prefill=prefill)
    with tw.Device("functional", language.program.config) as device:
        for prompt in ([5, 6, 7], list(range(20, 50))):
            conversation, reference, before = Conversation(language, device), GreedyReference(model), prompt
            for step in conversation.generate(prompt, 6, sampler=DRAWN):
                np.testing.assert_array_equal(step.logits, reference.logits(before))
                before = [step.token]
            save_state(tmp_path / "talk.npz", conversation)
            loaded = Conversation(language, device)
            load_state(tmp_path / "talk.npz", loaded)
            assert made(loaded, [], 9) == made(conversation, [], 9)
            conversation.follow([*prompt[:2], 40])
            assert made(conversation, [], 5) == alone(language, device, [*prompt[:2], 40], 5)


@pytest.fixture
def saved(language: LanguageModel, device: Runner, tmp_path: Path) -> Path:
    conversation = Conversation(language, device)
    made(conversation, [5, 6, 7], 2)
    save_state(tmp_path / "talk.npz", conversation)
    return tmp_path / "talk.npz"


def test_a_state_of_another_model(language: LanguageModel, device: Runner, saved: Path) -> None:
    other = LanguageModel(type(language.program).from_bytes(language.program.to_bytes()))
    constants = bytearray(other.program.constants)
    constants[0] ^= 1
    other.program.constants = bytes(constants)
    with pytest.raises(UsageError, match=r"is a conversation of small_llama \(another compilation, program") as error:
        load_state(saved, Conversation(other, device))
    assert "\n" not in str(error.value)


def changed(saved: Path, **arrays: np.ndarray) -> None:
    with np.load(saved) as file:
        held = dict(file) | arrays
    np.savez(saved, **{name: value for name, value in held.items() if value is not None})


@pytest.mark.parametrize(
    "arrays",
    [
        {"tokens": np.array([5, 6, 7, 96, 0])},
        {"tokens": np.array([[5, 6]])},
        {"tokens": np.zeros(100, np.int64)},
        {"tokens": None},
        {"position": np.array(6)},
        {"position": np.array(-1)},
        {"position": np.array("four")},
        {"messages": np.frombuffer(b'[{"role": "user"}]', np.uint8)},
        {"messages": np.frombuffer(b"7", np.uint8)},
        {"messages": np.array([{}], object)},
        {"text": np.frombuffer(b'["a", 6]', np.uint8)},
        {"text": np.frombuffer(b"{}", np.uint8)},
        {"state.past_key_values.0.key": np.zeros((1, 2, 16, 9), np.int8)},
        {"state.past_key_values.0.key": np.zeros((1, 2, 16, 8), np.uint8)},
        {"state.past_key_values.1.value": None},
    ],
)
def test_damaged_states(language: LanguageModel, device: Runner, saved: Path, arrays: dict[str, np.ndarray]) -> None:
    changed(saved, **arrays)
    conversation = Conversation(language, device)
    with pytest.raises(UsageError, match=r"talk\.npz is no saved conversation, or damaged; --save-state writes them"):
        load_state(saved, conversation)
    assert conversation.tokens == []


def test_files_of_other_kinds(language: LanguageModel, device: Runner, saved: Path) -> None:
    whole = saved.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], json.dumps({}).encode()):
        saved.write_bytes(content)
        with pytest.raises(UsageError, match="is no saved conversation, or damaged"):
            load_state(saved, Conversation(language, device))
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("digest.npy", bytes(1 << 24))  # a file that is larger than it looks
    with pytest.raises(UsageError, match="is no saved conversation, or damaged"):
        load_state(saved, Conversation(language, device))
    with pytest.raises(UsageError, match="no such file"):
        load_state(saved.parent / "none.npz", Conversation(language, device))


def test_prompts_that_cannot_be_continued(language: LanguageModel, device: Runner) -> None:
    conversation = Conversation(language, device)
    with pytest.raises(InputError, match="the prompt is empty"):
        next(conversation.generate([], 1))
    made(conversation, [5, 6], 3)
    with pytest.raises(InputError, match="the prompt has 1 tokens behind 5 others, and 60 more need 65 positions"):
        next(conversation.generate([7], 60))
    with pytest.raises(InputError, match="the prompt has 60 tokens behind 5 others; small_llama knows 64 positions"):
        next(conversation.generate([7] * 60, 1))
    assert len(conversation.tokens) == 5
