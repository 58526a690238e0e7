"""Style and types: what `make lint` checks, apart from the layers; and docstrings that are sentences."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.common.paths import ROOT


def check(*arguments: str) -> None:
    """Run a tool as a module of this interpreter; its report is the failure message."""
    result = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_check() -> None:
    check("ruff", "check", ".")


def test_ruff_format() -> None:
    check("ruff", "format", "--check", "--diff", ".")


@pytest.mark.slow
def test_mypy() -> None:
    check("mypy")


#: Folders of the product whose docstrings all name their subject.
SENTENCES = (
    *("common", "isa", "simulator", "driver", "fpga"),
    *(f"compiler/{name}" for name in ("cpu", "importer", "passes", "graph", "onnx", "llvm", "*.py")),
)
#: Folders in them that do not.
FRAGMENTS = ("fpga/bridge",)
#: Beginnings of a docstring without a subject: "Of ACT.", "Those of the op.", "It writes.", "As it is."
DANGLING = re.compile(r"(Of|Those|That of|They|As it (is|stands)|As they (are|stand)|It [a-z]+)\b")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, statement in pairwise([None, *body]) if isinstance(body, list) else ():
            described = isinstance(node, ast.Module | ast.ClassDef) and isinstance(before, ast.Assign | ast.AnnAssign)
            match statement:
                case ast.Expr(ast.Constant(str(text))) if before is None or described:
                    yield statement.lineno, text


@pytest.mark.medium
def test_docstrings_name_their_subject() -> None:
    paths = [p for name in SENTENCES for p in ([*ROOT.glob(name)] if "*" in name else (ROOT / name).rglob("*.py"))]
    checked = [p for p in paths if not any(p.is_relative_to(ROOT / name) for name in FRAGMENTS)]
    assert len(checked) > 300
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in checked
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if DANGLING.match(text)
    ]
