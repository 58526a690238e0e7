"""The perplexity of a text: the quality of a language model's predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import InputError
from tilewright.generate.feed import DECODE, PREFILL
from tilewright.generate.language_model import LanguageModel
from tilewright.runtime.devices import Runner


@dataclass(frozen=True)
class Score:
    """The prediction of a text.

    Attributes:
        tokens: that were predicted.
        nats: mean of -log(probability) of each.
    """

    tokens: int
    nats: float

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats)

    def to_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "perplexity": self.perplexity, "bits_per_token": self.nats / math.log(2)}


def score(language: LanguageModel, device: Runner, tokens: Sequence[int], **options: Any) -> Score:
    """The prediction of each token of a text by those before it in its piece; pieces are as long as the cache, and each
    begins with an empty one.

    Raises:
        InputError: a token outside of the vocabulary, or fewer than two.
    """
    size = min(language.cache, language.context)
    pieces = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    pieces = [piece for piece in pieces if len(piece) > 1]
    if not pieces:
        raise InputError(f"a text of {len(tokens)} tokens; two at least are needed, one to predict the other")
    total, count = 0.0, 0
    for piece in pieces:
        language.check(piece, 1)
        logits = _logits(language, device, piece, options).astype(np.float64)[:-1]
        logits -= logits.max(1, keepdims=True)
        chosen = np.take_along_axis(logits, np.array(piece[1:])[:, None], 1)[:, 0]
        total += float((np.log(np.exp(logits).sum(1)) - chosen).sum())
        count += len(piece) - 1
    return Score(count, total / count)


def _logits(language: LanguageModel, device: Runner, piece: Sequence[int], options: dict[str, Any]) -> np.ndarray:
    """Logits after each token of a piece, float32 [tokens, vocabulary]."""
    device.reset_state(language.program)
    if language.every_logits and language.prefill >= len(piece):
        return language.rows(device, PREFILL, piece, 0, options)
    return np.concatenate([language.rows(device, DECODE, [t], at, options) for at, t in enumerate(piece)])
