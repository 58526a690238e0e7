"""The texts of tokens, as a model's metadata has them: a JSON list of strings under "vocabulary"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tilewright.errors import InputError, UsageError

KEY = "vocabulary"


class Vocabulary:
    """Texts of tokens, by number.

    Args:
        texts: different ones, none empty.

    Raises:
        UsageError: texts that are empty or alike.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self._number = {text: number for number, text in enumerate(self.texts)}
        if "" in self._number or len(self._number) != len(self.texts):
            raise UsageError("a vocabulary has texts that differ, none of them empty")
        self._longest = max(map(len, self.texts), default=0)

    @staticmethod
    def of(metadata: Mapping[str, str], where: str) -> Vocabulary | None:
        """Returns the vocabulary of a model, None if it has none. Raises `UsageError` for something else under its
        name."""
        if KEY not in metadata:
            return None
        try:
            texts = json.loads(metadata[KEY])
        except ValueError:
            texts = None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{where}: {KEY!r} in the metadata must be a JSON list of strings")
        return Vocabulary(texts)

    def __len__(self) -> int:
        return len(self.texts)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers, the longest token that fits first. Raises `InputError` for what no token begins with."""
        found: list[int] = []
        at = 0
        while at < len(text):
            sizes = range(min(self._longest, len(text) - at), 0, -1)
            size = next((n for n in sizes if text[at : at + n] in self._number), 0)
            if not size:
                raise InputError(
                    f"the prompt has {text[at]!r} as character {at + 1}, which no token of the vocabulary begins with "
                    f"(it has {len(self)})"
                )
            found.append(self._number[text[at : at + size]])
            at += size
        return found

    def text(self, token: int) -> str:
        return self.texts[token]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.texts[token] for token in tokens)

    def number(self, text: str) -> int | None:
        """None: no token of a vocabulary in the metadata is a special one."""
        return None
