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


#: Folders whose docstrings all name their subject.
SENTENCES = (
    *("common", "isa", "simulator", "driver", "hw", "fpga", "compiler", "tilewright", "verification", "calibration"),
    *("examples", "tests"),
)
#: Beginnings of a docstring without a subject: "Of ACT.", "As it is.", "What it was.", "Returns what it is."
DANGLING = re.compile(
    r"((Returns|Yields) (what|where|which|how|it|those)|Of|Those|These|This|That|They|It|Its|Their|There|What|Whatever"
    r"|Where|Which|How|When|While|Until|Unless|So|Same|Also|And|But|Not|Then|Once|As|At|After|Against|Around|Before"
    r"|Behind|Below|Beside|Between|By|For|From|In|Into|Just|Like|Off|On|Over|Since|To|With|Within|Without)\b"
)


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
    checked = [path for name in SENTENCES for path in (ROOT / name).rglob("*.py")]
    assert len(checked) > 1400
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in checked
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if DANGLING.match(text)
    ]
