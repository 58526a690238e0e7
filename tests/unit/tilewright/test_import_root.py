"""The wheel has one top-level package, which works beside a user's modules of any name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.common import needs
from tests.common.paths import ADDITIONS, PARTS, ROOT
from tests.common.quantized_chain import quantized_chain
from tests.unit.docs.pages import tracked

#: What a user runs: compile, run, check, RTL, a sweep and the onnxruntime provider, in a folder with modules of his
#: own.
SCRIPT = """
import isa, driver, compiler, hw.core
import numpy as np
import onnxruntime
import tilewright as tw

def main():
    program = tw.compile("model.onnx", config="tiny", cache=False)
    feeds = tw.random_inputs(program, 0)
    assert tw.Device("cycle").run(program, feeds)
    assert tw.check("model.onnx", feeds, config="tiny", cache=False).ok
    assert tw.check("model.onnx", feeds, config="tiny", cache=False, device="rtl").ok
    outcome = tw.sweep("space.toml", "swept", ["model.onnx"], jobs=1)
    assert outcome.count("done") == 2, outcome
    session = tw.onnxruntime_session("model.onnx", config="tiny")
    want = onnxruntime.InferenceSession("model.onnx").run(None, feeds)
    assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), want))
    print(tw.__file__, isa.OWN, driver.OWN, compiler.OWN, hw.core.OWN)

if __name__ == "__main__":
    main()
"""
SPACE = """
base = "tiny"
[axes]
acc_rows = [64, 128]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel, as pip unpacks it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in tracked():
        if name.split("/")[0] in (*PARTS, "tilewright", "pyproject.toml", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    prebuilt = source / "common" / "prebuilt" / "x86-64"  # as .ci/prebuilt.py has it
    prebuilt.mkdir(parents=True)
    (prebuilt / "library.so").touch()
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.medium
def test_one_top_level_package(site: Path) -> None:
    assert [path.name for path in sorted(site.iterdir()) if not path.name.endswith(".dist-info")] == ["tilewright"]
    assert all((site / "tilewright" / part).is_dir() for part in (*PARTS, *ADDITIONS))
    assert not (site / "tilewright" / "additions").exists(), "what links lead to is there once"


@pytest.mark.medium
def test_data_files(site: Path) -> None:
    """Native libraries that were built ahead, and the network of `tilewright demo`."""
    assert (site / "tilewright" / "common" / "prebuilt" / "x86-64" / "library.so").is_file()
    digits = site / "tilewright" / "zoo" / "digits"
    assert {path.name for path in digits.iterdir()} == {"digits_float.onnx", "digits_int8.onnx", "digits_test.npz"}


@pytest.mark.slow
def test_beside_modules_of_any_name(site: Path, tmp_path: Path) -> None:
    needs.program(needs.C_COMPILER, "g++")
    for part in PARTS:
        if part in ("compiler", "hw", "simulator"):
            (tmp_path / part).mkdir()
            (tmp_path / part / "__init__.py").write_text("OWN = 'own'\n")
            (tmp_path / part / "core.py").write_text("OWN = 'own'\n")
        else:
            (tmp_path / f"{part}.py").write_text("OWN = 'own'\n")
    (tmp_path / "model.onnx").write_bytes(quantized_chain().SerializeToString())
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-5:] == [str(site / "tilewright" / "__init__.py"), *["own"] * 4]
