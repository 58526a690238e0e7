"""The guides to kernels and to assembler: code runs, assembly is accepted, and messages are what they say."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.isa.assembler import assemble
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import EncodingError

GUIDE = ROOT / "docs" / "guide"
TEXT = (GUIDE / "kernels.md").read_text(encoding="utf-8")
ASSEMBLER = (GUIDE / "assembler.md").read_text(encoding="utf-8")


@pytest.mark.medium
def test_the_kernel_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, *others = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {}
    file = tmp_path / "guide.py"
    file.write_text(first, encoding="utf-8")
    exec(compile(first, str(file), "exec"), names)
    printed = capsys.readouterr().out
    assert "[112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127]]" in printed
    assert printed.rstrip().endswith("END")
    for code in others:  # at a prompt, where there is no file
        exec(compile(code, "<stdin>", "exec"), names)
    assert capsys.readouterr().out == "True\n"


def test_the_assembly_is_accepted(tmp_path: Path) -> None:
    (text,) = re.findall(r"```\n(LOAD .*?)```", ASSEMBLER, re.DOTALL)
    (tmp_path / "guide.s").write_text(text, encoding="utf-8")
    found = CliRunner().invoke(cli, ["asm", str(tmp_path / "guide.s"), "-o", str(tmp_path / "guide.bin")])
    assert found.exit_code == 0, found.output
    assert len((tmp_path / "guide.bin").read_bytes()) == 5 * 16


def _product(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs the product of the page, with a text of its code; returns what it prints."""
    exec(compile(text, "product", "exec"), {})
    return capsys.readouterr().out


def test_the_product_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", ASSEMBLER, re.DOTALL)
    assert f"It prints `{_product(code, capsys).strip()}`" in ASSEMBLER
    changes = re.findall(r"^\| `(.+?)` for `(.+?)` \| (.+) \|$", ASSEMBLER, re.MULTILINE)
    assert len(changes) == 4
    for new, old, message in changes:
        assert code.count(old) == 1
        with pytest.raises(DeviceError, match=re.escape(message)):
            _product(code.replace(old, new), capsys)


def test_messages_of_the_assembler() -> None:
    section = ASSEMBLER.split("## Messages")[1].split("A run stops")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section, re.MULTILINE)
    assert len(rows) == 7
    for line, message in rows:
        with pytest.raises(EncodingError, match=r"^copy\.s:3: " + re.escape(message.removesuffix("..."))):
            assemble(f"# a comment\n\n{line}\n", "copy.s")
