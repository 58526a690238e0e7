"""`Conversation`: the tokens of one stream on a device, and its cache while others use the device."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from tilewright.generate.feed import DECODE, PREFILL
from tilewright.generate.sampling import GREEDY, Sampler
from tilewright.generate.text_stream import TextStream, Words
from tilewright.isa.device import Counters
from tilewright.isa.program import Program
from tilewright.runtime.devices import Runner

STOP, LENGTH = "stop", "length"
"""Why tokens end: one that stops came, or as many as were asked for."""


@dataclass(frozen=True)
class Step:
    """A token that a model made.

    Attributes:
        token: its number.
        logits: float32 [vocabulary] that it was chosen by.
        entry: the entry point that made it.
        seconds: wall time of its run.
        cycles: of the NPU, None on a device without a clock.
        finish: why it is the last one, `STOP` or `LENGTH`; "" for all others.
    """

    token: int
    logits: np.ndarray
    entry: str
    seconds: float
    cycles: int | None
    finish: str = ""


@dataclass(frozen=True)
class Piece:
    """The text that a token brought.

    Attributes:
        text: whole characters, "" while some wait for their rest.
        step: the token.
        finish: as of a step; also `STOP` for a text that stops.
    """

    text: str
    step: Step
    finish: str = ""


class Decoder(Protocol):
    """A language model, as far as a conversation needs it; see `LanguageModel`."""

    program: Program
    prefill: int
    every_logits: bool
    cache: int
    context: int
    tokens: int
    on_device: MutableMapping[Runner, weakref.ref[Conversation]]

    def check(self, prompt: Sequence[int], count: int, before: int = 0) -> None: ...

    def room(self, tokens: int) -> int: ...

    def run(
        self, device: Runner, entry: str, tokens: Sequence[int], position: int, options: Mapping[str, Any]
    ) -> np.ndarray: ...


class Conversation:
    """Tokens read and made, and the cache for them. Conversations of a model may share a device, and go on in turns.

    Args:
        language: the model.
        device: whose counters and states are used; not thread-safe.

    Attributes:
        tokens: numbers of all tokens, in order.
        computed: how many of them, from the first on, are in the cache.
        runs: of each entry point so far.
        counters: of the last run of each entry point.
        known_text: a text, and how many tokens, from the first on, stand for it; None where it is not known.
    """

    def __init__(self, language: Decoder, device: Runner) -> None:
        self.language, self.device = language, device
        self.tokens: list[int] = []
        self.computed = 0
        self.runs: Counter[str] = Counter()
        self.counters: dict[str, Counters | None] = {}
        self._kept: dict[str, np.ndarray] | None = None  # while another one has the device; None for a first run
        self.known_text: tuple[str, int] | None = None

    def states(self) -> dict[str, np.ndarray]:
        """Copies of the cache, by name."""
        self._take_device()
        return self.device.states(self.language.program)

    def restore(self, tokens: Sequence[int], computed: int, states: Mapping[str, np.ndarray]) -> None:
        """Goes on from tokens, the first `computed` of which are in the cache `states`.

        Raises:
            InputError: states of another model.
        """
        self._take_device()
        self.device.reset_state(self.language.program, states)
        self.tokens, self.computed, self.known_text = list(tokens), computed, None

    def fork(self, count: int) -> Conversation:
        """Another conversation with the same first tokens, as many of them in its cache as can be."""
        found = Conversation(self.language, self.device)
        found._kept = self.states()
        found.tokens, found.computed, found.known_text = [*self.tokens], self.computed, self.known_text
        found.rewind(count)
        return found

    def rewind(self, count: int) -> None:
        """Forgets all but the first `count` tokens. A cache that went round is computed anew."""
        if count < self.computed:
            self.computed = count if self.computed <= self.language.cache else 0
        del self.tokens[count:]
        if self.known_text is not None and self.known_text[1] > count:
            self.known_text = None

    def follow(self, tokens: Sequence[int]) -> None:
        """Takes these tokens in place of its own, and keeps of the cache what both begin with."""
        self.rewind(self.common(tokens))
        self.tokens += tokens[len(self.tokens) :]

    def common(self, tokens: Sequence[int]) -> int:
        """The number of tokens that both begin with."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.tokens, tokens)))

    def knows(self, text: str) -> bool:
        """Whether a text goes on behind that of this conversation."""
        return self.known_text is not None and text.startswith(self.known_text[0])

    def encode(self, words: Words, text: str, special: bool = True) -> list[int]:
        """Tokens of a text; where it goes on behind the text of this conversation, its tokens and those of the rest.

        A tokenizer may cut a text that a model made in another way than the model did.
        """
        if self.known_text is not None and self.knows(text):
            return self.tokens[: self.known_text[1]] + words.encode(text[len(self.known_text[0]) :], special=False)
        return words.encode(text, special)

    def generate(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        sampler: Sampler = GREEDY,
        stop: Collection[int] = (),
        **options: Any,
    ) -> Iterator[Step]:
        """Goes on behind the prompt, which follows what was read and made so far; it may be empty then.

        Args:
            prompt: numbers of tokens.
            count: tokens to make, fewer if one of `stop` comes, which is then the last one.
            sampler: chooses them.
            options: handed to the device.

        Raises:
            InputError: a token outside of the vocabulary, no token at all, more tokens than there are positions.
        """
        self.language.check(prompt, count, before=len(self.tokens))
        self.tokens += prompt
        self.computed = min(self.computed, len(self.tokens) - 1)  # the last one is computed again for its logits
        for number in range(count):
            logits, entry, seconds, cycles = self._read(options)
            token = sampler.choose(logits, len(self.tokens))
            self.tokens.append(token)
            finish = STOP if token in stop else LENGTH if number + 1 == count else ""
            yield Step(token, logits, entry, seconds, cycles, finish)
            if finish:
                return

    def write(
        self,
        words: Words,
        prompt: Sequence[int],
        count: int,
        *,
        sampler: Sampler = GREEDY,
        stop: Collection[int] = (),
        stop_texts: Sequence[str] = (),
        text: str | None = None,
        **options: Any,
    ) -> Iterator[Piece]:
        """Generates text; see `generate`. Texts of tokens and texts that stop are left out.

        Args:
            text: that of all tokens with the prompt, if it is known. `encode` then knows texts that go on behind it.
        """
        stream, made, self.known_text = TextStream(words, stop_texts, [*self.tokens, *prompt]), "", None
        for step in self.generate(prompt, count, sampler=sampler, stop=stop, **options):
            last = step.finish == STOP
            found = "" if last else stream.push(step.token)
            if step.finish:
                found += stream.end()
            made += found
            finish = STOP if stream.stopped else step.finish
            if finish and text is not None and not stream.stopped and "\ufffd" not in made:
                self.known_text = text + made, len(self.tokens) - last
            yield Piece(found, step, finish)
            if finish:
                return

    def _take_device(self) -> None:
        """Puts its cache into the device, and saves that of the conversation there."""
        there = self.language.on_device.get(self.device)
        other = there() if there is not None else None
        if other is self:
            return
        if other is not None:
            other._kept = self.device.states(self.language.program)
        self.device.reset_state(self.language.program, self._kept)
        self._kept = None
        self.language.on_device[self.device] = weakref.ref(self)

    def _read(self, options: Mapping[str, Any]) -> tuple[np.ndarray, str, float, int | None]:
        """Computes the tokens that are not in the cache. Returns logits, entry point, seconds and cycles of the last
        run.

        A run of several tokens may not go round: later tokens would take the places of earlier ones that are still
        seen. So it begins earlier where the cache ends, and tokens behind the end come one by one. So does the last
        token behind a run that is not full, if that gives no logits of it.
        """
        self._take_device()
        language, at = self.language, self.computed
        if at == 0:  # what another text left is not seen, but a first run begins as the program says
            self.device.reset_state(language.program)
        while True:
            many = language.prefill > 1 and len(self.tokens) - at > 1 and at < language.cache
            entry = PREFILL if many else DECODE
            size = language.prefill if many else 1
            first = min(at, language.cache - size) if many else at
            whole = language.every_logits or len(self.tokens) - first >= size
            piece = self.tokens[first : min(first + size, len(self.tokens) - (not whole))]
            began = time.perf_counter()
            logits = language.run(self.device, entry, piece, first, options)
            seconds = time.perf_counter() - began
            self.computed = at = first + len(piece)
            counters = self.device.counters
            self.runs[entry] += 1
            self.counters[entry] = counters
            if at == len(self.tokens):
                return logits, entry, seconds, counters.cycles if counters is not None else None
