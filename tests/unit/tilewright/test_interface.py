"""The Python interface: what it gives is short to look at, has types, and says what the commands say."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import tilewright as tw
from tests.common.onnx_models import graph_of
from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.isa.config import PRESETS

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"
LONGEST = 700


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNING", "off")


@pytest.fixture(scope="module")
def program() -> tw.Program:
    return tw.compile_program(MODEL, tuning="off")


def command(*arguments: object) -> Any:
    done = CliRunner().invoke(cli, [*map(str, arguments), "--json", "-"], prog_name="tilewright")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def float_model(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    shapes = {"x": [1, 3, 8, 8]}, {"y": [1, 4, 8, 8]}
    graph = graph_of([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], *shapes)
    graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "float.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def short(thing: Any) -> None:
    """Asserts that its text is one line and its HTML a table."""
    text = repr(thing)
    assert text.isprintable() and len(text) < LONGEST and text.startswith(type(thing).__name__.replace("Runner", "Dev"))
    assert thing._repr_html_().startswith("<table>")


@pytest.mark.medium
def test_everything_is_short_to_look_at(program: tw.Program, float_model: Path, tmp_path: Path) -> None:
    device = tw.Device("cycle")
    short(device)
    result = device.run_detailed(program, tw.random_inputs(program))
    explained = tw.explain(program)
    quantised = tw.quantize(float_model, np.zeros((4, 3, 8, 8), np.float32) + np.linspace(-1, 1, 8, dtype=np.float32))
    found = tw.check(MODEL, keep="all", program=program)
    for thing in (program, result, *PRESETS.values(), found, explained, tw.compare(explained, explained), quantised):
        short(thing)
    short(device)
    assert "digits" in repr(program) and "base" in repr(program) and "float32" in repr(program)
    assert f"cycles={explained.cycles:,}" in repr(explained)
    assert explained.rows[0].layer.name in explained._repr_html_()


def test_machines_are_told_apart_by_their_text() -> None:
    base = PRESETS["base"]
    assert repr(base) != repr(base.with_(semaphores=30)) and repr(base) == repr(base.with_())
    assert len({repr(c) for c in PRESETS.values()}) == len(PRESETS)


@pytest.mark.medium
def test_explain_is_the_command(program: tw.Program, tmp_path: Path) -> None:
    found = json.loads(json.dumps(tw.explain(MODEL, "small", clock_mhz=50).to_dict()))
    wanted = command("explain", MODEL, "--config", "small", "--clock", 50)
    assert found.pop("clock_from") == "clock_mhz" and wanted.pop("clock_from") == "--clock"
    assert found == wanted
    program.save(tmp_path / "a.twp")
    assert tw.explain(tmp_path / "a.twp").cycles == tw.explain(program).cycles
    assert tw.explain(MODEL, "small", board="ulx3s_85f").cycles > found["cycles"]


@pytest.mark.medium
def test_compare_is_the_command(program: tw.Program) -> None:
    (wanted,) = command("compare", "tiny", "base", "--model", MODEL)
    assert json.loads(json.dumps(tw.compare("tiny", PRESETS["base"], MODEL).to_dict())) == wanted
    assert tw.compare(program, MODEL).ratio == 1
    assert tw.compare(tw.explain(program), program, clock_mhz=50).ratio == 1


@pytest.mark.medium
def test_quantize_is_the_command(float_model: Path, tmp_path: Path) -> None:
    samples = np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "samples.npy", samples)
    out = tmp_path / "out.onnx"
    wanted = command("quantize", float_model, "--calibration", tmp_path / "samples.npy", "-o", out)
    assert wanted.pop("output") == str(out)
    found = tw.quantize(float_model, samples)
    assert json.loads(json.dumps(found.to_dict())) == wanted
    found.save(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == out.read_bytes()
    with pytest.raises(tw.UsageError, match="bytes must be those of a TFLite file"):
        tw.quantize(b"nothing", samples)


@pytest.mark.slow
def test_sweep(tmp_path: Path) -> None:
    """A sweep works in a process of its own: the cluster starts others."""
    space = tmp_path / "space.toml"
    space.write_text('base = "tiny"\n[axes]\nqueue_depth = [4, 16]\n[objective]\nminimise = ["cycles"]\n')
    script = (
        "import json, sys, tilewright as tw\n"
        "if __name__ == '__main__':\n"
        "    found = tw.sweep(sys.argv[1], sys.argv[2], [sys.argv[3]], jobs=1)\n"
        "    assert len(repr(found)) < 700 and found._repr_html_().startswith('<table>'), repr(found)\n"
        "    print(json.dumps(found.to_dict()))\n"
    )
    (tmp_path / "script.py").write_text(script)
    arguments = [sys.executable, tmp_path / "script.py", space, tmp_path / "out", MODEL]
    ran = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["computed"] > 0 and [p["state"] for p in found["points"]] == ["done", "done"] and found["front"]
    assert found["family"] == "ecp5" and Path(found["database"]).is_file()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: tw.explain(p, "small"), "compiled already: config has no effect"),
        (lambda p: tw.explain(p, effort=2), "compiled already: effort has no effect"),
        (lambda p: tw.explain("nowhere.onnx"), "no such model file: nowhere.onnx"),
        (lambda p: tw.explain(MODEL, board_memory="bram"), "name the board"),
        (lambda p: tw.compare("small", "base"), "two configurations need a network"),
        (lambda p: tw.compare("small", p), "not one of each"),
        (lambda p: tw.compare("small", "base", MODEL, config="tiny"), "config has no effect"),
        (lambda p: tw.compare(p, p, MODEL), "model goes with two configurations"),
    ],
)
def test_mistakes(call: Any, message: str, program: tw.Program) -> None:
    with pytest.raises(tw.TilewrightError, match=message):
        call(program)


@pytest.mark.medium
def test_packages_are_called_by_their_names() -> None:
    """Whether they were imported before or not, and their modules stay reachable."""
    text = (
        "import tilewright as tw, sys\n"
        "assert 'onnx' not in sys.modules and 'compiler' not in sys.modules, 'importing it is slow'\n"
        "assert callable(tw.quantize)\n"
        "import tilewright.quantize.samples\n"
        "assert callable(tw.quantize) and tw.quantize.samples.samples_of and tw.quantize is tilewright.quantize\n"
        "from tilewright.quantize import quantize\n"
        "from tilewright import quantize as package\n"
        "assert package is tw.quantize and quantize is not package\n"
        "assert {'quantize', 'sweep', 'explain', 'compare'} <= set(dir(tw)) & set(tw.__all__)\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    parameters = inspect.signature(tw.quantize).parameters
    assert list(parameters)[:2] == ["model", "data"]
    assert list(inspect.signature(tw.sweep).parameters)[:3] == ["space", "output", "networks"]
    for name in tw.__all__:
        assert inspect.getdoc(getattr(tw, name)), name


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'dask'", name="dask")

    monkeypatch.setattr(tw, "import_module", missing)
    monkeypatch.delattr(tw, "sweep", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"dask is not installed: .*pip install .*sweep"):
        tw.sweep("space.toml", "out")


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "tilewright" / "py.typed").is_file()


@pytest.mark.long
def test_a_script_is_checked_against_the_types(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import tilewright as tw\n"
        "program = tw.compile_program('m.onnx')\n"
        "a: int = tw.explain(program).cycles + program.config.macs_per_cycle\n"
        "b: float = tw.compare('small', 'base', 'm.onnx').ratio\n"
        "tw.quantize('float.onnx', 'photos/').save('int8.onnx')\n"
        "c: str = tw.explain(program)\n"
        "tw.compile_program(3)\n"
        "tw.quantise\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "", "--cache-dir", tmp_path, "script.py"], cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split(":")[1] for line in ran.stdout.splitlines() if line.startswith("script.py")]
    assert lines == ["6", "7", "8"], ran.stdout + ran.stderr
