"""Compiles are measured as processes that find nothing kept, beside a `vela` where there is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tests.common.tflite_models import T, unary
from tilewright.cli import cli
from tilewright.common.store import cache_folder
from tilewright.errors import UsageError
from tilewright.measure import compile_speed

#: Burns CPU time, writes a file, and fails for what is no TFLite model of more than a few bytes.
VELA = """#!/bin/sh
case "$*" in --version) echo 9.9; exit;; *"--accelerator-config ethos-u65-256"*) ;; *) exit 3;; esac
n=0; while [ $n -lt 20000 ]; do n=$((n + 1)); done
[ $(wc -c < "$1") -gt 100 ] || { echo "vela: no such operator" >&2; exit 2; }
: > out_vela.tflite
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Networks of both kinds, one of them damaged; a `vela` on the PATH that keeps what it is asked for."""
    models, tools = tmp_path / "models", tmp_path / "tools"
    (models / "more").mkdir(parents=True)
    tools.mkdir()
    tensors = (T(name, (1, 4, 4, 8), scale=0.1) for name in "xy")
    (models / "more" / "relu.tflite").write_bytes(unary("RELU", *tensors))
    (models / "damaged.tflite").write_bytes(b"\0\0\0\0TFL3")
    shutil.copy(ROOT / "examples" / "digits" / "digits_int8.onnx", models)
    (models / "notes.txt").write_text("no network\n")
    (tools / "vela").write_text(VELA)
    (tools / "vela").chmod(0o755)
    monkeypatch.setenv("TILEWRIGHT_MODELS", str(models))
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    return models


@pytest.mark.slow
def test_every_network_of_the_folder(folder: Path, empty_cache: Path) -> None:
    before = sorted((cache_folder() / "programs").glob("*"))
    done = CliRunner().invoke(cli, ["bench", "--compile", "--runs", "1", "--config", "small", "--json", "-"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["vela"], found["accelerator"], found["config"], found["runs"]) == ("9.9", "ethos-u65-256", "small", 1)
    damaged, digits, relu = found["networks"]
    assert [row["name"] for row in found["networks"]] == ["damaged.tflite", "digits_int8.onnx", "more/relu.tflite"]
    assert digits["cpu_seconds"] > 0.1 and digits["seconds"] > 0.1, "a process that imports the compiler"
    assert digits["vela_cpu_seconds"] is None and digits["ratio"] is None, "Vela reads TFLite alone"
    assert relu["ratio"] == pytest.approx(relu["cpu_seconds"] / relu["vela_cpu_seconds"])
    assert damaged["cpu_seconds"] is None and "damaged.tflite" in damaged["error"]
    assert damaged["vela_error"] == "vela: no such operator"
    assert sorted((cache_folder() / "programs").glob("*")) == before, "nothing is kept"


@pytest.mark.slow
def test_without_vela(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(compile_speed, "NATIVE", ())
    done = CliRunner().invoke(cli, ["bench", "--compile", "--runs", "1", "--model", str(folder / "more/relu.tflite")])
    assert done.exit_code == 0 and "relu.tflite" in done.output and "no command vela on the PATH" in done.output


def test_there_must_be_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (str(tmp_path), ""):
        monkeypatch.setenv("TILEWRIGHT_MODELS", folder)
        with pytest.raises(UsageError, match=r"^--compile needs networks: set TILEWRIGHT_MODELS to a folder"):
            compile_speed.networks()
    with pytest.raises(UsageError, match="no such file"):
        compile_speed.networks(tmp_path / "none.onnx")
