"""`tilewright doctor`: what is there is found, and everything that is not has a command that brings it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.cli import cli, doctor


def test_everything_has_a_command() -> None:
    found = list(doctor.findings())
    assert len({f.what for f in found}) == len(found)
    assert all(f.found or f.command for f in found)
    by_name = {f.what: f for f in found}
    import onnxruntime

    assert by_name["onnxruntime>=1.23"].found == onnxruntime.__version__


def test_what_is_missing_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing on the PATH, a cache that cannot be made."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    by_name = {f.what: f for f in doctor.findings()}
    for name in ("C++ compiler", "cache folder", "dtc", "qemu-aarch64", "tools for Xilinx"):
        assert not by_name[name].found, name
    assert by_name["C++ compiler"].command.endswith("apt-get install g++")


def test_versions_that_are_too_old() -> None:
    assert doctor.installed_version("onnxruntime>=1.23", lambda name: "1.22.9") == ""
    assert doctor.installed_version("onnxruntime>=1.23", lambda name: "1.100.0rc1") == "1.100.0rc1"


def test_command() -> None:
    shown = CliRunner().invoke(cli, ["doctor"])
    assert shown.exit_code == 0 and "C++ compiler" in shown.output
    printed = CliRunner().invoke(cli, ["doctor", "--json", "-"])
    assert {"what", "use", "found", "command"} == set(json.loads(printed.stdout)[0])
