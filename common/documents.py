"""Reads tables that people write, TOML or JSON, within limits. A file of a few bytes must not take a minute or all
memory, and its content can be printed and written as JSON again.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tilewright.common.store import opened

#: Longest file, in bytes; the longest of ours has two thousand.
MAX_BYTES = 1 << 18
#: Tables in tables, lists in lists.
MAX_DEPTH = 16
#: Dots on a line of TOML: its parser takes quadratic time for the parts of a key.
_MAX_DOTS = 256
_INTEGERS = 1 << 64


def read_document(path: str | Path, toml: bool | None = None) -> Any:
    """Reads a TOML or JSON file and returns its content.

    Args:
        toml: TOML or JSON; None to go by the file's suffix.

    Raises:
        OSError: the file cannot be read.
        ValueError: the content is too long, not valid, too deep, or has text or integers of no use; one line names the
            reason.
    """
    path = Path(path)
    with opened(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    return parse_document(content, path.suffix == ".toml" if toml is None else toml)


def parse_document(content: bytes | str, toml: bool) -> Any:
    """Parses the bytes or text of a TOML or JSON file; see `read_document`. Raises `ValueError`."""
    kind = "TOML" if toml else "JSON"
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        if toml and any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
            raise ValueError(f"a line has more than {_MAX_DOTS} dots")
        found = tomllib.loads(text.replace("\r\n", "\n")) if toml else json.loads(text)
    except RecursionError:
        raise ValueError(f"not valid {kind}: nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise ValueError(f"not valid {kind}: {error}") from None
    _check(found)
    return found


def _check(document: Any) -> None:
    """Checks depth, text and integers of a document, without recursion, as depth is checked. Raises `ValueError`."""
    level, depth = [document], 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                deeper += value
            elif isinstance(value, int) and not -_INTEGERS < value < _INTEGERS:
                raise ValueError("an integer has more than 64 bits")
            elif isinstance(value, str) and not value.isascii():
                try:
                    value.encode("utf-8")
                except UnicodeEncodeError:
                    raise ValueError(f"text {value!a} is no Unicode") from None
        level, depth = deeper, depth + 1
