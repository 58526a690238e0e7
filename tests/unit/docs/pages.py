"""The documentation as data: its pages, and what they name (links, code, commands)."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.common.paths import ROOT


@dataclass(frozen=True)
class Page:
    """A Markdown page.

    Attributes:
        path: of the file, relative to the repository.
        anchors: of its headings, as GitHub makes them.
        links: targets of links and images.
        code: the texts of its inline code.
        blocks: (language, text) of its code blocks; the language may be "".
    """

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    blocks: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return str(self.path)

    def shell_lines(self) -> Iterator[str]:
        """Commands of its console blocks: in a block with prompts the lines after `$ `, else every line; lines that
        end in a backslash are joined with the next."""
        for language, text in self.blocks:
            if language not in ("", "sh", "shell", "bash", "console"):
                continue
            lines = text.replace("\\\n", " ").splitlines()
            prompts = [line[2:] for line in lines if line.startswith("$ ")]
            yield from prompts or lines


def tracked() -> list[str]:
    """Files of the repository that are, or would be, in version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def read(path: Path) -> Page:
    """Reads a page; `path` is relative to the repository."""
    page = Page(path)
    tokens = MarkdownIt("commonmark").enable("table").parse((ROOT / path).read_text(encoding="utf-8"))
    for before, token in zip([None, *tokens], tokens):
        if token.type == "fence":
            page.blocks.append((token.info.strip(), token.content))
        elif token.type == "inline":
            if before is not None and before.type == "heading_open":
                page.anchors.add(_anchor(token))
            _read_inline(page, token)
    return page


def _read_inline(page: Page, token: Token) -> None:
    for child in token.children or []:
        if child.type == "code_inline":
            page.code.append(child.content)
        elif child.type in ("link_open", "image"):
            page.links.append(str(child.attrs["href" if child.type == "link_open" else "src"]))


def _anchor(heading: Token) -> str:
    """GitHub's anchor of a heading: lower case, punctuation dropped, blanks as hyphens."""
    text = "".join(c.content for c in heading.children or [] if c.type in ("text", "code_inline"))
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@functools.cache
def pages() -> list[Page]:
    """Every Markdown page but the decisions, whose names and figures are those of their day."""
    return [read(Path(name)) for name in tracked() if name.endswith(".md") and not name.startswith("docs/decisions/")]


@functools.cache
def decisions() -> list[Page]:
    return [read(Path(name)) for name in tracked() if name.endswith(".md") and name.startswith("docs/decisions/")]


def commands(page: Page, program: str) -> Iterator[tuple[list[str], bool]]:
    """Arguments of every call of a program in a page; with each, whether it is one of a console block, which must be
    complete (inline code may just name a command)."""
    for line in page.shell_lines():
        for words in _calls(line, program):
            yield words, True
    for text in page.code:
        for words in _calls(text, program):
            yield words, False


def _calls(line: str, program: str) -> Iterator[list[str]]:
    if program not in line:
        return
    try:
        words = [*shlex.split(line, comments=True), ";"]
    except ValueError:  # not a shell line
        return
    call: list[str] = []
    for word in words:
        if word in ("&&", "|", ";", ">", "\\") or word.endswith(";"):
            if word.endswith(";") and word != ";":
                call.append(word[:-1])
            if call and call[0].removeprefix(".venv/bin/") == program:
                yield call[1:]
            call = []
        else:
            call.append(word)
