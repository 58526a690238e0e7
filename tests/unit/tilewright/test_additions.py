"""Additions stand beside the core: each has its row, and the core works where none can be imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from tests.common.paths import ADDITIONS, ROOT
from tilewright import registry
from tilewright.common.errors import UsageError

#: Imports, compiles, runs, checks, writes RTL and lists commands while no addition can be imported.
CORE = """
import sys
import importlib.abc

class Refuses(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:1] == ["tilewright"] and name.split(".")[1:2] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

REFUSED = [[name] for name in sys.argv[2:]]
sys.meta_path.insert(0, Refuses())
import tilewright as tw
from tilewright.cli import cli
from tilewright.hw.verilog import convert
from tilewright.isa.config import PRESETS

model = sys.argv[1]
program = tw.compile(model, tuning="off", cache=False)
inputs = tw.random_inputs(program)
assert tw.Device("functional").run(program, inputs)
assert tw.check(model, inputs, keep="all").ok
assert convert(PRESETS["nano"])
try:
    tw.explain(program)
except tw.UsageError as error:
    assert str(error) == "tilewright.energy is not part of this installation of Tilewright", error
else:
    raise AssertionError("there is no energy")
cli.main(["--help"], prog_name="tilewright", standalone_mode=False)
"""


def test_each_addition_has_a_row_and_a_floor_above_the_core() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert sorted(registry.ADDITIONS) == sorted(layers[0].split(" : "))
    assert sorted(registry.ADDITIONS) == sorted({*ADDITIONS, "quantization"})


def test_what_the_rows_name_is_there() -> None:
    for name, addition in registry.ADDITIONS.items():
        for path, command in addition.commands.items():
            found = registry.load(command.place)
            assert isinstance(found, click.Command), path
            first = " ".join((found.help or "").split("\n\n")[0].split())
            assert first == command.summary and found.name == path.split()[-1]
        places = [*addition.devices, *addition.services.values()]
        places += [f"{module}:{public}" for public, module in addition.names.items()]
        for place in places:
            assert registry.load(place) is not None
            assert place.startswith(f"tilewright.{name}")


@pytest.mark.medium
def test_the_core_works_without_them() -> None:
    model = ROOT / "examples" / "digits" / "digits_int8.onnx"
    command = [sys.executable, "-c", CORE, str(model), *registry.ADDITIONS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_addition_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"tilewright\.nothing\.here is not part of this installation"):
        registry.load("tilewright.nothing.here:x")
    (tmp_path / "addition_that_needs.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):  # not the addition, but what it needs
        registry.load("addition_that_needs")
