"""Ctrl-C while the command line is imported: one line and exit code 130, whatever module it falls into."""

import subprocess
import sys

import pytest

from tests.common.paths import ROOT

INTERRUPTED = """
import importlib.abc, os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

wanted = sys.argv.pop(1)

class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
runpy.run_module("tilewright", run_name="__main__")
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    "module",
    [
        "tilewright.cli",
        "click",
        "tilewright.cli.group",
        "tilewright.cli.commands.compile",
        "numpy",
        "tilewright.isa.config",
    ],
)
def test_ctrl_c_while_importing(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, "compile", "missing.onnx", "-o", "x.twp"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (130, "tilewright: error: interrupted\n")
