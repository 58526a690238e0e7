"""The notebooks: each has cells and pictures, and one runs as `make notebooks` runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.common.paths import ROOT

FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.py") if path.name != "run.py")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_sources(path: Path) -> None:
    """A title, text between the code, a picture, and a row in the README."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    cells = re.findall(r"^# %%(?: \[(\w+)\])?$", text, re.MULTILINE)
    assert cells.count("markdown") >= 2 and cells.count("") >= 3
    assert "plt.show()" in text
    compile(text, path.name, "exec")
    assert f"| `{path.stem}` |" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_there_are_seven() -> None:
    assert len(NOTEBOOKS) == 7


@pytest.mark.slow
def test_kernel_by_hand(tmp_path: Path) -> None:
    """The notebook runs by Jupyter's kernel where that is installed, else as a script; it compares its bytes itself."""
    jupyter = all(importlib.util.find_spec(name) for name in ("jupytext", "nbclient", "ipykernel"))
    path = FOLDER / "kernel_by_hand.py"
    command = [FOLDER / "run.py", path.stem] if jupyter else [path]
    environment = dict(os.environ, MPLBACKEND="" if jupyter else "Agg")
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if jupyter:
        assert "kernel_by_hand: 2 pictures" in done.stdout
        written = json.loads((ROOT / "build" / "notebooks" / "kernel_by_hand.ipynb").read_text())
        assert written["nbformat"] == 4
    else:
        assert "GEMM wait0=1 signal0=2" in done.stdout


@pytest.mark.cosim
@pytest.mark.long
def test_add_an_instruction(tmp_path: Path) -> None:
    """An instruction's source goes into a copy of the checkout, whose machine equals numpy on all devices and pays."""
    path = FOLDER / "add_an_instruction.py"
    environment = dict(os.environ, MPLBACKEND="Agg", TMPDIR=str(tmp_path))
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "equal to numpy by definition, on functional, cycle and RTL" in done.stdout
    gains = re.findall(r"^(\w+) +[\d,]+ -> +[\d,]+ cycles, ([\d.]+) x, ([+-]\d+) LUTs$", done.stdout, re.MULTILINE)
    assert [name for name, _, _ in gains] == ["tiny", "small", "base"]
    assert all(float(gain) > 1.5 and int(luts) < 100 for _, gain, luts in gains)
    assert not any(tmp_path.iterdir())  # the copy is gone
