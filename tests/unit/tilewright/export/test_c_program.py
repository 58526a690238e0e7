"""Programs for other hosts in Python: what the file holds, and what is refused."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.export.c_program import RUNTIME_HEADER, identifier, runtime_header
from tilewright.isa.program import CpuStep

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"
MACHINES = {"x86_64-linux": 62, "aarch64-linux": 183, "armv7-linux": 40, "riscv64-linux": 243}  # ELF, e_machine


@pytest.fixture(scope="module")
def foreign() -> tw.Program:
    return tw.compile(MODEL, host="riscv64-linux")


@pytest.mark.medium
@pytest.mark.parametrize("host", MACHINES)
def test_program_file(tmp_path: Path, host: str) -> None:
    """Relocatable objects for the host and the C header are in the file; an exported object names its program."""
    result = CliRunner().invoke(cli, ["compile", str(MODEL), "--host", host, "-o", str(tmp_path / "net.twp")])
    assert result.exit_code == 0, result.output
    program = tw.load(tmp_path / "net.twp")
    assert program.sections[RUNTIME_HEADER] == runtime_header()
    steps = [s for s in program.steps if isinstance(s, CpuStep)]
    for step in steps:
        head = program.sections[step.section][:20]
        relocatable, machine = np.frombuffer(head[16:], "<u2")
        assert head[:4] == b"\x7fELF" and relocatable == 1 and machine == MACHINES[host]
    result = CliRunner().invoke(
        cli, ["export-c", str(tmp_path / "net.twp"), "-o", str(tmp_path / "c"), "--name", "abc"]
    )
    assert result.exit_code == 0, result.output
    for step in steps:
        assert b"\0abc_" + step.section.encode() + b"\0" in (tmp_path / "c" / f"abc_{step.section}.o").read_bytes()
    blob = (tmp_path / "c" / "abc_data.bin").read_bytes()
    assert program.instructions in blob and program.constants in blob


@pytest.mark.medium
def test_foreign_program_does_not_run(foreign: tw.Program) -> None:
    with pytest.raises(tw.ConfigMismatchError, match="compiled for host riscv64-unknown-linux-gnu, this machine is"):
        tw.Device("functional").run(foreign, tw.random_inputs(foreign))


@pytest.mark.medium
def test_mistakes(tmp_path: Path, foreign: tw.Program) -> None:
    with pytest.raises(tw.TilewrightError, match=r"host must be one of x86_64-linux, .* not 'sparc'"):
        tw.compile(MODEL, host="sparc")
    with pytest.raises(tw.UsageError, match="was not compiled for C; compile it with --host"):
        tw.export_c(tw.compile(MODEL), tmp_path)
    with pytest.raises(tw.UsageError, match="must be a C identifier, not 'a-b'"):
        tw.export_c(foreign, tmp_path / "new", "a-b")
    (tmp_path / "file").touch()
    with pytest.raises(tw.UsageError, match="cannot make folder"):
        tw.export_c(foreign, tmp_path / "file")
    other = copy.deepcopy(foreign)
    other.sections[RUNTIME_HEADER] += b"\n"
    with pytest.raises(tw.UsageError, match="compile it again to export it"):
        tw.export_c(other, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_identifiers() -> None:
    assert [identifier(t) for t in ("resnet18", "a b-c", "1x1", "é", "--")] == [
        "resnet18", "a_b_c", "net_1x1", "program", "program",
    ]  # fmt: skip


@pytest.mark.medium
def test_names_from_a_model_stay_text(tmp_path: Path, foreign: tw.Program) -> None:
    """A name with line breaks, comment marks and calls of make reaches the files as one harmless line."""
    mark = tmp_path / "mark"
    program = copy.deepcopy(foreign)
    program.name = f"net */\n#include </etc/passwd>\n$(shell touch {mark})\nall:\n\ttouch {mark}\n"
    program.inputs[0].name = '"};\n#error here\n'
    names = tw.export_c(program, tmp_path / "c", "net")
    made = subprocess.run(["make", "-n"], cwd=tmp_path / "c", capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0 and not mark.exists(), made.stderr
    for name in names:
        if name.endswith((".c", ".h")) or name == "Makefile":
            lines = (tmp_path / "c" / name).read_text().splitlines()
            assert not [line for line in lines if line.lstrip().startswith(("#include </etc", "#error", "all:"))], name
    assert "$(shell" not in (tmp_path / "c" / "Makefile").read_text()
    program.sections["cpu0; touch x"] = b""
    with pytest.raises(tw.UsageError, match="names of sections must be lower-case letters"):
        tw.export_c(program, tmp_path / "odd")
