"""Tools and files that some tests need besides the package. A test without them is skipped by `skip`, and the end of
the run says what was not tested and which command brings what is missing (`tests/conftest.py`)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest


@dataclass(frozen=True)
class Need:
    """Something that is not part of the test environment.

    Attributes:
        untested: what is not tested without it, a noun.
        command: brings it.
    """

    untested: str
    command: str


TOOLS = "make test-tools"
C_COMPILER = Need("C code that is compiled", TOOLS)
C_COMPILERS = Need("the C driver with other compilers", TOOLS)
RTL_TOOLS = Need("the RTL in cocotb", TOOLS)
CROSS_COMPILERS = Need("exported C programs of other processors", TOOLS)
EMULATORS = Need("exported C programs of other processors, beyond linking", TOOLS)
STANDALONE = Need("boards without a host", "make venv")
EMULATOR = Need("programs of boards without a host in an emulator", TOOLS)
BROWSER = Need("the sweep report in a browser", TOOLS)
DEVICE_TREES = Need("device trees through dtc", TOOLS)
TK = Need("Tcl scripts of the Zynq export", f"{TOOLS}, and a Python with tkinter, as Debian's is")
TOKENIZERS = Need("tokenizers of published models", "make venv")
TORCH = Need("PyTorch modules", "make test-torch")
GAUSSIAN = Need("sweeps by the sampler gp", "make test-torch")
LITERT = Need("models inside LiteRT", "make venv")
AI_EDGE = Need("files of ai-edge-quantizer", "make test-torch")
MODELS = Need("the reference models", "make test TILEWRIGHT_MODELS=<their folder>")
RTL_PROJECTS = Need("the exported RTL in FuseSoC and PeakRDL", "make test-ip")
SITE = Need("the documentation site", "make site")
NOTEBOOKS = Need("notebooks in Jupyter's kernel", "make notebooks")
XILINX_TOOLS = Need("bitstreams of Xilinx FPGAs by open tools", "tilewright fpga fetch-tools")
NEXUS_TOOLS = Need("bitstreams of CrossLink-NX", "make venv")
LIBERTY = Need("energy of gates by a Liberty library", TOOLS)
OPENSTA = Need("energy of gates beside OpenSTA", TOOLS)
GTKWAVE = Need("waveforms read by GTKWave", TOOLS)
X86 = Need("code for x86-64 with and without its instructions", "make test on an x86-64 machine")
INSTALLED = Need("the installed command", "make venv")

_REASON = re.compile(r"(?:Skipped: )?not tested: (?P<untested>.*?)(?: \((?P<why>.*)\))? \[(?P<command>.*)\]", re.DOTALL)


def reason(need: Need, why: str = "") -> str:
    """The reason of a skip, in the form `summary` reads."""
    return f"not tested: {need.untested}{f' ({why})' if why else ''} [{need.command}]"


def skip(need: Need, why: str = "", *, module: bool = False) -> NoReturn:
    """Skip the running test, or the whole module while it is imported."""
    pytest.skip(reason(need, why), allow_module_level=module)


def program(need: Need, name: str) -> str:
    """Path of a program of this environment or on the PATH; the test is skipped without it."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        skip(need, f"{name} is missing")
    return found


def summary(reasons: Iterable[str]) -> list[str]:
    """A line for each command: what it would have let us test, with the number of tests; then skips without one."""
    by_command: dict[str, Counter[str]] = defaultdict(Counter)
    for text in reasons:
        found = _REASON.fullmatch(text)
        if found is None:
            by_command[""][text.removeprefix("Skipped: ")] += 1
        else:
            by_command[found["command"]][found["untested"]] += 1
    lines = []
    for command in sorted(by_command, key=lambda c: (c == "", c)):
        what = "; ".join(f"{name} ({count} skipped)" for name, count in sorted(by_command[command].items()))
        lines.append(f"not tested: {what}" + (f". To test it: {command}" if command else ""))
    return lines
