"""The folder of a language model, and what it has beside the model: tokenizer, tokens that stop, template of chats.

The files are those that models are published with: `tokenizer.json`, `tokenizer_config.json`,
`generation_config.json`, `config.json` and `chat_template.jinja`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.common.installation import require
from tilewright.common.text import one_line
from tilewright.errors import UsageError

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
_MOST_BYTES = 256 << 20


class Tokenizer:
    """A `tokenizer.json`, by the package `tokenizers`.

    Args:
        path: of the file.

    Raises:
        MissingPackageError: the package is not installed. UsageError: the file cannot be read, or is none.
    """

    def __init__(self, path: str | Path) -> None:
        text = _text(Path(path))
        try:
            self._tokenizer = require("tokenizers").Tokenizer.from_str(text)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # the package raises nothing narrower
            raise UsageError(f"{path}: no tokenizer, or of a kind unknown to this version: {one_line(error)}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in added.items() if token.special}
        numbers = self._tokenizer.get_vocab(with_added_tokens=True).values()
        self._size = 1 + max(numbers, default=-1)

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers; where `special`, with those that the tokenizer puts around a text, such as its beginning."""
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def number(self, text: str) -> int | None:
        return self._special.get(text)


@dataclass(frozen=True)
class ModelFolder:
    """The files beside a model.

    Attributes:
        path: the folder; None for none, which says nothing.
        tokenizer_file: the tokenizer's, None for none.
    """

    path: Path | None = None
    tokenizer_file: Path | None = field(default=None)

    @staticmethod
    def of(model: str | Path | None, tokenizer: str | Path | None = None) -> ModelFolder:
        """The folder of a model.

        Args:
            model: file of the model. Its folder is taken if a tokenizer's file is in it; that above a folder `onnx`,
                too.
            tokenizer: folder, or file of a tokenizer in it, to be taken in place of the model's.

        Raises:
            UsageError: `tokenizer` is not there.
        """
        if tokenizer is not None:
            given = Path(tokenizer)
            file = given / TOKENIZER if given.is_dir() else given
            if not file.is_file():
                raise UsageError(f"no tokenizer at {given}: give a tokenizer.json, or the folder that has one")
            return ModelFolder(file.parent, file)
        if model is None:
            return ModelFolder()
        folder = Path(model).absolute().parent
        for place in (folder, *([folder.parent] if folder.name == "onnx" else [])):
            if any((place / name).is_file() for name in (TOKENIZER, CONFIG)):
                return ModelFolder(place, place / TOKENIZER if (place / TOKENIZER).is_file() else None)
        return ModelFolder()

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        return Tokenizer(self.tokenizer_file) if self.tokenizer_file is not None else None

    @cached_property
    def config(self) -> dict[str, Any]:
        """`tokenizer_config.json`; empty where there is none."""
        return self._json(CONFIG)

    def special_text(self, name: str) -> str:
        """The text of "bos_token", "eos_token" and their like; "" where the folder names none."""
        found = self.config.get(name)
        found = found.get("content") if isinstance(found, dict) else found
        return found if isinstance(found, str) else ""

    def stop_tokens(self) -> list[int]:
        """Numbers of the tokens that end a text: of `generation_config.json`, else of `config.json`, else the
        `eos_token` of the tokenizer. Raises `UsageError` for a damaged file."""
        for name in ("generation_config.json", "config.json"):
            found = self._json(name).get("eos_token_id")
            numbers = found if isinstance(found, list) else [] if found is None else [found]
            if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in numbers):
                raise UsageError(f"{name} in {self.path}: eos_token_id must be the number of a token, not {found!r}")
            if numbers:
                return numbers
        text = self.special_text("eos_token")
        number = self.tokenizer.number(text) if text and self.tokenizer is not None else None
        return [] if number is None else [number]

    def template(self) -> str | None:
        """The chat template, as text; None where the folder has none."""
        if self.path is None:
            return None
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return _text(file)
        found = self.config.get("chat_template")
        if isinstance(found, list):  # several, by name
            by_name = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
            found = by_name.get("default")
        return found if isinstance(found, str) else None

    def _json(self, name: str) -> dict[str, Any]:
        file = self.path / name if self.path is not None else None
        if file is None or not file.is_file():
            return {}
        try:
            found = json.loads(_text(file))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UsageError(f"{file} is damaged: it must hold a JSON object")
        return found


def _text(path: Path) -> str:
    """The text of a file. Raises `UsageError` for what is none, or larger than any known."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} has more than {_MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8") from None
