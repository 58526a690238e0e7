"""Digests of code: the same code under another file name, with other comments or another layout is no other code."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

#: Comments and included files of C++ go; strings, characters, words and other characters stay.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/|^\s*#\s*include[^\n]*', re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')


def digest_of_code(sources: Iterable[Path]) -> str:
    """Returns 12 hex digits over the code of Python and C++ files.

    Names and places of files, their order, imports, comments, docstrings and layout change nothing; nor does the file
    of a Python function or class.
    """
    parts = sorted(part for source in sources for part in _parts(source))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _parts(source: Path) -> list[str]:
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".py":
        module = _Plain().visit(ast.parse(text))
        return [ast.unparse(statement) for statement in module.body]
    return [" ".join(_TOKEN.findall(_COMMENT.sub(r"\1", text)))]


class _Plain(ast.NodeTransformer):
    """Removes imports, which say where other code lies, and docstrings."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
