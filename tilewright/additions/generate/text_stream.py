"""Text of tokens as they come: whole characters only, up to a text that ends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_REPLACEMENT = "\ufffd"
_MOST_WAITING = 16
"""Tokens that wait for the rest of a character; more of them are none."""


class Words(Protocol):
    """Texts of tokens: a `Vocabulary` or a `Tokenizer`."""

    def __len__(self) -> int: ...

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers of a text. Where `special`, also those that a tokenizer puts around a whole text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens without special ones; U+FFFD stands for bytes that are no whole character."""
        ...

    def number(self, text: str) -> int | None:
        """The special token of this text, None if there is none."""
        ...


class TextStream:
    """Text of tokens, piece by piece.

    A character of several bytes may be spread over tokens: it comes when it is whole. What may be the beginning of a
    stop text waits until it is clear what follows.

    Args:
        words: texts of tokens.
        stops: texts that end the stream, none of them empty. They are not part of it.
        before: tokens that come before those of the stream; the text of some depends on them.

    Attributes:
        stopped: a stop text came.
    """

    def __init__(self, words: Words, stops: Sequence[str] = (), before: Sequence[int] = ()) -> None:
        self._words, self._stops = words, list(stops)
        self._tokens = list(before[-4:])
        self._known = words.decode(self._tokens) if self._tokens else ""
        self._waiting = 0  # tokens at the end that are not in `_known`
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain now."""
        self._tokens.append(token)
        self._waiting += 1
        text = self._words.decode(self._tokens)
        if text.endswith(_REPLACEMENT) and self._waiting <= _MOST_WAITING:
            return ""
        return self._release(text)

    def end(self) -> str:
        """The rest of the text, when no token follows."""
        if self.stopped:
            return ""
        text = self._release(self._words.decode(self._tokens)) if self._waiting else ""
        rest, self._held = ("", "") if self.stopped else (self._held, "")
        return text + rest

    def _release(self, text: str) -> str:
        """The part that comes out when `text` is that of all tokens."""
        self._held += text[len(self._known) :]
        self._tokens = self._tokens[-max(self._waiting, 4) :]
        self._known, self._waiting = self._words.decode(self._tokens), 0
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self.stopped = True
            found, self._held = self._held[: min(places)], ""
            return found
        kept = max((size for stop in self._stops for size in range(1, len(stop)) if self._held.endswith(stop[:size])),
                   default=0)  # fmt: skip
        found, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return found
