"""The documentation site: all pages are in it, and what is made of the sources is complete."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from amaranth.lib.wiring import FlippedSignature

import tilewright as tw
from tests.common import needs
from tests.unit.docs.pages import ROOT, decisions, pages
from tilewright.isa.config import preset

OUTSIDE = {".github/ISSUE_TEMPLATE/bug.md", ".github/ISSUE_TEMPLATE/feature.md", ".github/pull_request_template.md"}


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """`.ci/site.py`."""
    spec = importlib.util.spec_from_file_location("site_builder", ROOT / ".ci" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_has_its_place(site: ModuleType) -> None:
    """The navigation has every page of the repository once, and no other."""
    placed = re.findall(r"[\w/.-]+\.md", site.configuration().partition("not_in_nav:")[2])
    expected = {str(page.path) for page in [*pages(), *decisions()]} - OUTSIDE
    made = {"reference/commands.md", "reference/api.md", "reference/kernels.md", "reference/amaranth.md"}
    assert sorted(name.lstrip("/") for name in placed) == sorted(expected | made)


def test_every_command_is_on_the_page(site: ModuleType) -> None:
    """A heading for each command and each of its options; nothing that a browser takes for a tag."""
    page = site.commands_page()
    names = [name for name, _ in site.commands("tilewright", site.cli)]
    assert re.findall(r"^## (.*)", page, re.MULTILINE) == names
    assert {"tilewright compile", "tilewright fpga build", "tilewright quantize"} <= set(names)
    assert "| `--top NAME` | Name of the top module. [default: npu] |" in page
    outside_code = re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)
    assert not re.findall(r"<\w", outside_code) and "\b" not in page


def _members(found: type) -> list[tuple[str, Any]]:
    """Public methods and properties that a class defines itself."""
    return [(name, value) for name, value in vars(found).items() if not name.startswith("_")]


@pytest.mark.parametrize("name", tw.__all__)
def test_public_names_are_documented(site: ModuleType, name: str) -> None:
    found = getattr(tw, name)
    assert inspect.getdoc(found), name
    assert f"heading: tw.{name}," in site.api_page()
    for member, value in _members(found) if inspect.isclass(found) else []:
        function = value.func if hasattr(value, "func") else getattr(value, "__func__", value)
        if callable(function) or isinstance(value, property):
            # Attributes are named in the docstring of the class.
            assert inspect.getdoc(function) or member in (inspect.getdoc(found) or ""), f"{name}.{member}"


def test_the_component_is_documented(site: ModuleType) -> None:
    """The NPU and the signature of each of its ports, and of theirs, are on the page."""
    from tilewright.hw import interfaces
    from tilewright.hw.npu import Npu

    needed = {"npu.Npu"}
    waiting = [member.signature for member in Npu(preset("tiny")).signature.members.values() if member.is_signature]
    while waiting:
        signature = waiting.pop()
        if isinstance(signature, FlippedSignature):
            signature = signature.flip()
        needed.add(f"interfaces.{type(signature).__name__}")
        waiting += [member.signature for member in signature.members.values() if member.is_signature]
    assert needed < set(site.COMPONENT)
    for name in site.COMPONENT:
        assert f"::: tilewright.hw.{name}\n" in site.amaranth_page()
        assert inspect.getdoc(Npu if name == "npu.Npu" else getattr(interfaces, name.removeprefix("interfaces.")))


@pytest.mark.slow
def test_strict_build() -> None:
    """All links and anchors lead somewhere, and the search has what it searches."""
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocstrings") is None:
        needs.skip(needs.SITE)
    done = subprocess.run([sys.executable, ROOT / ".ci" / "site.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = ROOT / "build" / "site"
    assert 'id="tilewright.api.compilation.compile"' in (built / "reference" / "api.html").read_text()
    assert 'id="tilewright.kernel.chip.Chip.matmul"' in (built / "reference" / "kernels.html").read_text()
    assert 'id="tilewright.hw.interfaces.Axi4"' in (built / "reference" / "amaranth.html").read_text()
    assert "tilewright fpga build" in (built / "search" / "search_index.json").read_text()
    assert "https://fonts" not in (built / "index.html").read_text()
