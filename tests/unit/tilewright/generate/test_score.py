"""Perplexity of a text, and prompts of which only the last token has logits."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw
from tilewright.cli import cli
from tilewright.errors import InputError
from tilewright.generate import Conversation, GreedyReference, LanguageModel, Sampler
from tilewright.generate import feed as feeding
from tilewright.generate.score import score

DRAWN = Sampler(temperature=6.0, seed=2)


@pytest.fixture(scope="module")
def of_the_last(model_file: Path) -> LanguageModel:
    """The model as if its vocabulary were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeding, "LARGE_VOCABULARY", 96)
        found = LanguageModel.load(model_file, "base")
    assert not found.every_logits and found.prefill == 16
    return found


@pytest.mark.medium
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 30])
def test_prompts_without_logits_of_each_token(language: LanguageModel, of_the_last: LanguageModel, length: int) -> None:
    """Prompts go on as others do, whether they fill a run or not."""
    prompt = [(7 * i + 3) % 96 for i in range(length)]
    tokens = []
    for model in (language, of_the_last):
        conversation = Conversation(model, tw.Device("functional", model.program.config))
        tokens.append([step.token for step in conversation.generate(prompt, 6, sampler=DRAWN)])
    assert tokens[0] == tokens[1]


@pytest.mark.medium
def test_score_is_that_of_the_reference(language: LanguageModel, of_the_last: LanguageModel, model_file: Path) -> None:
    """Pieces are as long as the cache, and none sees another."""
    tokens = [(11 * i * i + 5) % 96 for i in range(35)]  # 16, 16 and 3
    total = 0.0
    for at in (0, 16, 32):
        piece, reference = tokens[at : at + 16], GreedyReference(model_file)
        for token, following in itertools.pairwise(piece):
            logits = reference.logits([token]).astype(np.float64)
            total += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[following]
    for model in (language, of_the_last):
        found = score(model, tw.Device("functional", model.program.config), tokens)
        assert found.tokens == 32 and found.nats == pytest.approx(total / 32, rel=1e-4)
    with pytest.raises(InputError, match="a text of 1 tokens; two at least"):
        score(language, tw.Device("functional", language.program.config), [5])


@pytest.mark.medium
def test_command(program_file: Path, tmp_path: Path) -> None:
    def run(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["generate", str(program_file), *options], prog_name="tilewright")
        return result.exit_code, result.stdout + result.stderr

    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question")
    code, printed = run("--score", str(text), "--json", "-")
    facts = json.loads(printed)
    assert code == 0 and facts["tokens"] == 41 - 3
    assert facts["perplexity"] == pytest.approx(2 ** facts["bits_per_token"])
    assert f"perplexity {facts['perplexity']:.3f}" in run("--score", str(text))[1]
    assert "--prompt can not be given with --score" in run("--score", str(text), "--prompt", "a")[1]
    text.write_bytes(b"\xff\xfe")
    assert "text.txt is no text" in run("--score", str(text))[1]
