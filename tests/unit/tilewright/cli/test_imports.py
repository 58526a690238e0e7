"""Imports of commands: a kept program needs no compiler, and its cycles need neither RTL nor references."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.common.paths import ROOT

MODEL = str(ROOT / "examples" / "digits" / "digits_int8.onnx")
#: Packages that take a tenth of a second to import or more, and the parts of this one that need them or are large.
LARGE = (
    "amaranth", "jinja2", "matplotlib", "onnx", "onnxruntime", "tflite", "tilewright.compiler.cpu.ops",
    "tilewright.compiler.graph", "tilewright.compiler.importer", "tilewright.compiler.npu",
    "tilewright.compiler.passes", "tilewright.compiler.pipeline", "tilewright.sweep", "tilewright.zoo",
)  # fmt: skip
_CODE = """
import sys
from tilewright.cli import cli
cli.main(sys.argv[1:], standalone_mode=False)
print(*sys.modules)
"""


def imported(arguments: list[str]) -> set[str]:
    """The modules in a process after a command."""
    environment = os.environ | {"TILEWRIGHT_PROGRAM_CACHE": "on"}
    command = [sys.executable, "-c", _CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--backend", "cycle", MODEL],
        ["explain", MODEL],
        ["compare", "--model", MODEL, "small", "base"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_kept_program_needs_no_compiler(arguments: list[str]) -> None:
    first, again = imported(arguments), imported(arguments)
    assert again <= first and not again.intersection(LARGE)
    assert {"numpy", "tilewright.simulator.cycle", "tilewright.measure.clock"} <= again


@pytest.mark.medium
@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("tilewright.quantize.model", ("tflite", "llvmlite", "tilewright.compiler.pipeline")),
        ("tilewright.quantize.verifying", ("tflite", "onnx.reference", "onnxruntime", "amaranth")),
        ("tilewright.api.build", ("tflite", "onnx.reference", "onnxruntime", "amaranth")),
        ("tilewright.cli.commands.compile", ("rich", "importlib.metadata")),
        ("tilewright.fpga.points", ("amaranth", "tilewright.hw.npu", "tilewright.fpga.flows")),
        ("tilewright.energy", ("amaranth", "tilewright.hw.npu", "tilewright.fpga.flows")),
        ("tilewright.compiler.cpu.target", ("llvmlite.binding", "tilewright.compiler.cpu.segment")),
    ],
)
def test_what_a_module_spares(module: str, spared: tuple[str, ...]) -> None:
    """Large packages that some functions of a module need are imported by these alone."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert module in done.stdout.split() and not set(spared).intersection(done.stdout.split())
