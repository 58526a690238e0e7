"""Names that would be a formula in a plot, a command to a terminal, or a line of a page."""

from __future__ import annotations

import io
import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

from tests.common import onnx_models
from tilewright.cli import cli
from tilewright.cli.printed import Printed

NAMES = [
    "$\\frac{$",
    "\x1b]0;title\x07\x1b[2J",
    "a\n$(touch x)`touch x`",
    "</script><script>alert(1)</script>",
    "\ud7ff\u202e",
]


def model(name: str) -> onnx.ModelProto:
    made = onnx_models.model_of(
        [helper.make_node("Relu", ["x"], [f"{name}1"], name), helper.make_node("Relu", [f"{name}1"], [name], name)],
        {"x": (1, 4, 8, 8)}, {name: (1, 4, 8, 8)},
    )  # fmt: skip
    made.graph.name = name
    return made


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_every_report(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(name), path)
    for arguments in (
        ["info", str(path), "--config", "tiny"],
        ["explain", str(path), "--config", "tiny", "--plot", str(tmp_path / "p.png")],
        ["explain", str(path), "--config", "tiny", "--plot", str(tmp_path / "p.html")],
        ["run", str(path), "--config", "tiny", "--backend", "cycle", "--timeline", str(tmp_path / "t.json")],
        ["compile", str(path), "--config", "tiny", "-o", str(tmp_path / "m.twp"), "--print-after", "all"],
    ):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, (arguments, done.output)
        assert done.stdout.replace("\n", "").replace("\t", "").isprintable(), arguments
    assert "<script>alert" not in (tmp_path / "p.html").read_text()
    json.loads((tmp_path / "t.json").read_text())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_pass_on_a_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        Printed(stream).write("\x1b[1;31mred\x1b[0m\t\x1b]0;title\x07\x1b[2J\n")
    assert terminal.getvalue() == "\x1b[1;31mred\x1b[0m\t?]0;title??[2J\n"
    assert pipe.getvalue() == "?[1;31mred?[0m\t?]0;title??[2J\n"
