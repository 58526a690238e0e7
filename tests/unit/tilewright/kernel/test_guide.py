"""The guide to kernels: its code runs, its assembly is accepted."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tilewright.cli import cli

TEXT = (ROOT / "docs" / "guide" / "kernels.md").read_text(encoding="utf-8")


@pytest.mark.medium
def test_the_kernel_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "guide.py"
    file.write_text(code, encoding="utf-8")
    exec(compile(code, str(file), "exec"), {})
    printed = capsys.readouterr().out
    assert "[112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127]]" in printed
    assert printed.rstrip().endswith("END")


def test_the_assembly_is_accepted(tmp_path: Path) -> None:
    (text,) = re.findall(r"```\n(LOAD .*?)```", TEXT, re.DOTALL)
    (tmp_path / "guide.s").write_text(text, encoding="utf-8")
    found = CliRunner().invoke(cli, ["asm", str(tmp_path / "guide.s"), "-o", str(tmp_path / "guide.bin")])
    assert found.exit_code == 0, found.output
    assert len((tmp_path / "guide.bin").read_bytes()) == 5 * 16
