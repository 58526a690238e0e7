"""The command line's numpy has one thread, unless the user says how many or the command multiplies large matrices."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CODE = """
import os, sys
from tilewright.cli import cli
cli.get_command(None, sys.argv[1])
import numpy, threadpoolctl
print(*{pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
print(os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def threads(command: str, **environment: str) -> tuple[list[int], str]:
    """The threads of numpy's products after a command was imported, and the variable then."""
    given = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")} | environment
    done = subprocess.run([sys.executable, "-c", _CODE, command], capture_output=True, text=True, env=given, check=True)
    counts, variable = done.stdout.splitlines()
    return [int(count) for count in counts.split()], variable


@pytest.mark.medium
@pytest.mark.parametrize("command", ["compile", "prove"])
def test_commands_have_one(command: str) -> None:
    counts, variable = threads(command)
    if not counts:
        pytest.skip("numpy's library of products is none that threadpoolctl knows")
    assert counts == [1] and variable == "None"


@pytest.mark.medium
def test_the_user_decides() -> None:
    counts, variable = threads("compile", OPENBLAS_NUM_THREADS="3")
    assert variable == "3" and counts in ([], [3], [min(3, os.cpu_count() or 1)])


@pytest.mark.medium
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor")
def test_large_products_have_all() -> None:
    assert threads("quantize")[0] != [1]
