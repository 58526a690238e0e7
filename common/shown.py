"""Objects that show themselves in a line, and as a small table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.common.text import printable

#: Longest text of a value, and entries of a list, that are shown.
MAX_TEXT, MAX_ENTRIES = 80, 4


class Shown:
    """A base of objects whose `repr` is made of `facts`: a line of a few hundred characters, however large they are."""

    def facts(self) -> dict[str, Any]:
        """The facts a user wants to see, texts and numbers, by their titles."""
        raise NotImplementedError

    def table(self) -> Sequence[Sequence[str]]:
        """The rows of a table below the facts, the headings first; none for no table."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_value(value)}' for name, value in self.facts().items())})"

    def _repr_html_(self) -> str:
        left = "style='text-align:left'"
        rows = "".join(
            f"<tr><th {left}>{_safe(name)}</th><td {left}>{_safe(_text(value))}</td></tr>"
            for name, value in self.facts().items()
        )
        return f"<table><caption>{_safe(type(self).__name__)}</caption>{rows}</table>{_table(self.table())}"


def listed(entries: Iterable[Any], most: int = MAX_ENTRIES) -> str:
    """Joins the first entries, and the number of further ones."""
    found = [_cut(str(entry)) for entry in entries]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def _table(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{_safe(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f"<table><tr>{head}</tr>{body}</table>"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _value(value: Any) -> str:
    return repr(printable(_cut(value))) if isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _safe(text: str) -> str:
    return html.escape(printable(text))
