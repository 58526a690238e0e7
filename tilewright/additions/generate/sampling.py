"""Choice of the next token by its logits: the most probable one, or one drawn with a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.errors import UsageError


@dataclass(frozen=True)
class Sampler:
    """Draws tokens by their probabilities.

    A draw depends on the logits, the seed and the token's position alone, so a conversation that is saved and loaded
    goes on as if it had not been.

    Attributes:
        temperature: divides the logits; 0 takes the token of the greatest logit, the first of equal ones.
        top_k: only so many of the most probable tokens are drawn from; 0 for all.
        top_p: only the fewest tokens whose probabilities reach this sum, after `top_k`; 1 for all.
        seed: 0..2^64 - 1.

    Raises:
        UsageError: a number out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise UsageError(f"temperature must be 0..100, not {self.temperature!r}")
        if self.top_k < 0:
            raise UsageError(f"top_k must be at least 0, not {self.top_k!r}")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, not {self.top_p!r}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"seed must be 0..2^64 - 1, not {self.seed!r}")

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The probability of each token, float64 of the shape of `logits`; 0 for those that are left out."""
        if self.temperature == 0:
            return np.asarray(np.arange(logits.size) == logits.argmax(), np.float64)
        scaled = (logits.astype(np.float64) - float(logits.max())) / self.temperature
        order = np.argsort(-scaled, kind="stable")[: self.top_k or None]
        weights = np.exp(scaled[order])
        weights /= weights.sum()
        kept = 1 + int(np.searchsorted(np.cumsum(weights)[:-1], self.top_p)) if self.top_p < 1 else weights.size
        found = np.zeros(logits.size)
        found[order[:kept]] = weights[:kept] / weights[:kept].sum()
        return found

    def choose(self, logits: np.ndarray, position: int) -> int:
        """The number of the next token.

        Args:
            logits: [vocabulary].
            position: of the token in its conversation.
        """
        if self.temperature == 0:
            return int(logits.argmax())
        sums = np.cumsum(self.probabilities(logits))
        drawn = np.random.default_rng([self.seed, position]).random() * sums[-1]
        return int(np.searchsorted(sums, drawn, side="right"))


GREEDY = Sampler()
"""Takes the token of the greatest logit."""
