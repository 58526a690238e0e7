"""Random graphs and damaged contexts in a process of their own, which must live."""

import subprocess
import sys

import pytest

from tests.common.paths import ROOT


@pytest.mark.slow
def test_fuzz() -> None:
    command = [sys.executable, "-m", "verification.fuzz.provider", "--count", "8", "--seed", "77"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "8 refused; 0 failures" in result.stdout, result.stdout + result.stderr[-3000:]
