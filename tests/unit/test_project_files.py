"""Files for services around the repository say what the repository does: versions, commands, packages."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import yaml

from tests.common.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def steps(workflow: str) -> list[str]:
    """The commands of a workflow's only job."""
    (job,) = yaml.safe_load(read(f".github/workflows/{workflow}.yml"))["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_workflow_is_the_script() -> None:
    assert steps("check") == [".ci/run"] and (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_the_site_is_built() -> None:
    assert steps("site") == ["make site"] and "\nsite:" in read("Makefile")


def test_a_release_is_tried_without_a_compiler() -> None:
    build, tried = steps("release")
    assert build == "make release" and "release:" in read("Makefile")
    assert "! command -v g++" in tried and "tilewright demo" in tried


def test_the_image_has_what_the_check_installs() -> None:
    """The packages of .ci/run but for Python's, and a Python that Tilewright takes."""
    wanted = set(re.findall(r"missing\+=\(([a-z+0-9-]+)\)", read(".ci/run"))) - {"python3-venv"}
    assert wanted == {"make", "g++", "perl"}
    (line,) = re.findall(r"--no-install-recommends ([^\\]+)\\", read("Dockerfile"))
    assert wanted <= set(line.split())
    (version,) = re.findall(r"^FROM python:(\d+\.\d+)-", read("Dockerfile"), re.MULTILINE)
    assert PROJECT["requires-python"] == f">={version}"
    assert '"make", "demo"' in read("Dockerfile")
    container = json.loads(read(".devcontainer/devcontainer.json"))
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"


def test_the_citation_is_of_the_release() -> None:
    citation: dict[str, Any] = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"]
    assert f"## [{citation['version']}] - {citation['date-released']}" in read("CHANGELOG.md")


def test_hooks_are_the_lint() -> None:
    """Each runs a program of `make lint`; mypy, which takes a minute, is left to it."""
    lint = read("Makefile").partition("\nlint:")[2].partition("\n\n")[0]
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    for hook in repository["hooks"]:
        program, _, rest = hook["entry"].removeprefix(".venv/bin/").partition(" ")
        command = f"$(BIN)/{program}" + (f" {rest.split()[0]}" if rest else "")
        assert command in lint, hook
