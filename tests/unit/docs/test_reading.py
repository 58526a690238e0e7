"""Pages are short to read: sentences, paragraphs and words in all are limited, and decisions begin alike."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.unit.docs.pages import ROOT, Page, decisions, pages

#: Words of a sentence, of a paragraph, and of all pages that a user or contributor reads.
SENTENCE, PARAGRAPH, ALL = 40, 150, 45_000
#: Pages, or their parts between marks, that commands write.
GENERATED = {Path("docs/isa.md"), Path("docs/verification/signoff.md"), Path("docs/verification/formal.md")}
READ = [page for page in pages() if page.path.suffix == ".md" and not page.path.is_relative_to("examples")]
TO_READ = [page for page in READ if page.path not in GENERATED]


def text_of(page: Page) -> str:
    """The page without what a command writes between two marks, `<!-- results: make models -->` and its end."""
    text = (ROOT / page.path).read_text(encoding="utf-8")
    return re.sub(r"<!-- (\w+): .*?<!-- end of \1 -->", "", text, flags=re.DOTALL)


def paragraphs(text: str) -> Iterator[str]:
    """Running text and items of lists of a page: no headings, tables and code blocks. Inline code is one word."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    table = False
    for before, token in zip([None, *tokens], tokens, strict=False):
        table = token.type == "table_open" or (table and token.type != "table_close")
        if token.type != "inline" or table or (before is not None and before.type == "heading_open"):
            continue
        parts = []
        for child in token.children or []:
            if child.type == "code_inline":
                parts.append("Code")
            elif child.type in ("text", "softbreak", "hardbreak"):
                parts.append(child.content or " ")
        yield "".join(parts)


def sentences(paragraph: str) -> list[str]:
    return re.split(r"(?<=[.!?])[)\"]?\s+", paragraph)


def words(text: str) -> int:
    return len([word for word in text.split() if re.search(r"\w", word)])


@pytest.mark.parametrize("page", TO_READ, ids=str)
def test_sentences_and_paragraphs(page: Page) -> None:
    if page.path == Path("CHANGELOG.md"):  # lists of names
        return
    found = list(paragraphs(text_of(page)))
    long = [(words(s), s) for p in found for s in sentences(p) if words(s) > SENTENCE]
    assert not long, "\n".join(f"{count} words: {sentence}" for count, sentence in long)
    assert not [(words(p), p) for p in found if words(p) > PARAGRAPH]


def test_words_in_all() -> None:
    """Pages for users and contributors stay below `ALL` words; references and records, `docs/isa.md` and
    `docs/verification`, are left out."""
    counted = {p.path: len(text_of(p).split()) for p in TO_READ if p.path.parent == Path("docs")}
    assert sum(counted.values()) < ALL, counted


def test_changelog_is_short() -> None:
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert releases[0].startswith("[Unreleased]")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert releases[1].startswith(f"[{project['version']}] - 20")
    assert all(len(release.split()) <= 1500 for release in releases)


def test_decisions_begin_alike() -> None:
    """Each says what was decided, what else there was, and its status; the index says the same of each."""
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    for page in decisions():
        if page.path.name == "README.md":
            continue
        begin = (ROOT / page.path).read_text(encoding="utf-8").split("\n\n")[1:4]
        names = [re.match(r"\*\*(\w+)\.\*\* ", paragraph) for paragraph in begin]
        assert [name and name[1] for name in names] == ["Decision", "Alternatives", "Status"], page
        assert f"({page.path.name}) | {begin[0].removeprefix('**Decision.** ')} |" in index, page
        assert re.match(r"\*\*Status\.\*\* (Accepted|Rejected|Superseded)\b.*\b20\d\d\b", begin[2], re.DOTALL), page
