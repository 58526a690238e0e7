"""Style and types: what `make lint` checks, apart from the layers."""

import subprocess
import sys

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
