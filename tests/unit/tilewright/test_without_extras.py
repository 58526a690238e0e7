"""Models compile and run without the packages of extras; a command that needs one names what brings it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.common.paths import ROOT
from tests.common.quantized_chain import quantized_chain
from tilewright.common.installation import EXTRA_OF, install_extra

#: Python runs it at the start of every process: the packages of extras are not found.
WITHOUT = f"""
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRA_OF)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
from importlib import metadata
known = metadata.version

def version(name):
    if name.replace("-", "_") in {sorted(EXTRA_OF)!r}:
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
"""
WORKS = """
import json
import tilewright as tw

program = tw.compile("model.onnx", config="tiny", cache=False)
feeds = tw.random_inputs(program, 0)
cycles = tw.explain(program).cycles
functional, cycle = (tw.Device(name).run(program, feeds) for name in ("functional", "cycle"))
assert all(functional[name].tobytes() == cycle[name].tobytes() for name in functional)
errors = []
for call in (
    lambda: tw.check("model.onnx", feeds, config="tiny"),
    lambda: tw.onnxruntime_session("model.onnx"),
    lambda: tw.sweep("space.toml", "swept", ["model.onnx"]),
    lambda: tw.Device("rtl").run(program, feeds),
):
    try:
        call()
    except (tw.TilewrightError, ModuleNotFoundError) as error:
        errors.append(str(error))
print(json.dumps([cycles, errors]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(WITHOUT)
    (tmp_path / "model.onnx").write_bytes(quantized_chain().SerializeToString())
    (tmp_path / "space.toml").write_text('base = "tiny"\n[axes]\nacc_rows = [64]\n')
    (tmp_path / "works.py").write_text(WORKS)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{folder / 'without'}:{ROOT}"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_python(folder: Path) -> None:
    done = run(folder, "works.py")
    assert done.returncode == 0, done.stderr
    cycles, errors = json.loads(done.stdout)
    assert cycles > 0 and len(errors) == 4
    for extra, text in zip(("check", "check", "sweep", "rtl"), errors, strict=True):
        assert text.endswith(install_extra(extra)) and "\n" not in text


@pytest.mark.slow
def test_commands(folder: Path) -> None:
    for works in ("config list", "zoo list", "backends", "doctor", "run model.onnx --backend cycle", "--help",
                  "explain model.onnx --config base", "info model.onnx", "sweep --help"):  # fmt: skip
        done = run(folder, "-m", "tilewright", *works.split())
        assert done.returncode == 0, (works, done.stderr)
    for extra, arguments in (
        ("check", ["demo"]),
        ("check", ["run", "model.onnx", "--check"]),
        ("check", ["zoo", "build", "resnet8", "-o", "resnet8.onnx"]),
        ("sweep", ["sweep", "space.toml", "-o", "swept", "--models", "model.onnx"]),
        ("fpga", ["fpga", "boards"]),
        ("rtl", ["rtl", "-o", "rtl"]),
        ("rtl", ["run", "model.onnx", "--backend", "rtl"]),
        ("remote", ["serve"]),
        ("remote", ["run", "model.onnx", "--device", "tcp://localhost:1"]),
        ("plots", ["explain", "model.onnx", "--plot", "plot.svg"]),
    ):
        done = run(folder, "-m", "tilewright", *arguments)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 2 and lines[-1].endswith(install_extra(extra)), (arguments, done.stderr)
        assert "internal fault" not in done.stderr
