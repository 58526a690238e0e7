"""The size of what must be right for a proof to be one.

Counted are the lines of the folder `checker` that have code: without comments, docstrings and empty lines. All of it
counts, as any of it could let two values have one name. What is beside the folder does not: the command, certificates,
where both sides come from, the search of inputs, and where a program leaves its graph. The checker imports none of it
(a contract of import-linter), and none of it can turn a rejection into a proof.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

from tests.common.paths import ROOT

CHECKER = ROOT / "tilewright" / "additions" / "prove" / "checker"
PAGE = ROOT / "docs" / "verification" / "prove.md"
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip


def code_lines(source: str) -> int:
    """Lines with code."""
    documented = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            documented |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documented)


def test_lines_of_code_are_counted() -> None:
    assert code_lines('"""A.\n\nB."""\n\n# c\nx = [\n    1,  # d\n]\n\ndef f():\n    """E."""\n    return x\n') == 5


def test_the_page_says_how_large_the_checker_is() -> None:
    """The wanted 1,500 are not reached: the page says why. It must not grow unseen."""
    size = sum(code_lines(path.read_text(encoding="utf-8")) for path in CHECKER.glob("*.py"))
    said = re.search(r"the folder `checker`, ([\d,]+) lines of code", PAGE.read_text(encoding="utf-8"))
    assert said is not None
    assert size == int(said[1].replace(",", ""))
