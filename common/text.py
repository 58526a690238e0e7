"""Names from strangers' files, made safe to write into other files.

A model, a tensor or a configuration can be named anything: a name with a newline would add a line to a Makefile, one
with a brace a command to a Tcl script. Every writer of a generated file passes names through `plain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Longest name that is written out.
MAX_NAME = 80
#: Characters that `plain` keeps: harmless between quotes, in braces, behind comment marks and in names of files. No
#: "/", "*" or "\".
ACCEPTED = "letters, digits, spaces and . _ + - , ="
_OTHERS = re.compile(r"[^0-9A-Za-z ._+,=-]")


def plain(name: str) -> str:
    """`name` with every character that `ACCEPTED` does not list replaced by "_", cut to MAX_NAME characters."""
    return _OTHERS.sub("_", name)[:MAX_NAME].strip()


def is_plain(name: str) -> bool:
    """True for a name, not empty, that may be written anywhere unchanged."""
    return bool(name) and plain(name) == name


def printable(text: str) -> str:
    """`text` with "?" for every character that a terminal or a page would act upon in place of showing it; lines and
    tabs stay."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def one_line(error: BaseException | str) -> str:
    """An exception's text on one line of printable characters, cut to a readable length."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
    return text if len(text) <= 600 else text[:597] + "..."


def suggest(name: str, known: Iterable[str]) -> str:
    """The hint after an unknown name in a message: " (did you mean base?)" for "bsae", "" where no name is near."""
    import difflib  # only mistakes need it

    by_lower = {k.lower(): k for k in sorted(known)}
    near = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(by_lower[n] for n in near)}?)" if near else ""


def mathtext_escaped(text: str) -> str:
    """`text` escaped so that Matplotlib shows it unchanged: between two dollar signs it would be a formula."""
    return printable(text).replace("$", r"\$")
