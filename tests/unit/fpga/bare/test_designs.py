"""Digests of designs: what changes them, where they are kept, and what is said of measurements stamped with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grimp
import pytest

from tests.common.paths import ROOT
from tilewright.fpga import area, fmax
from tilewright.fpga.bare import designs
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import PRESETS

NANO, TINY = PRESETS["nano"], PRESETS["tiny"]


@pytest.fixture
def elaborated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Elaborates nothing: a design is the name of its configuration. Returns the names as they are elaborated."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr("tilewright.hw.npu.Npu", lambda config: config)
    names: list[str] = []
    monkeypatch.setattr(
        "tilewright.hw.verilog.component_rtlil", lambda config, top: names.append(config.name) or config.name
    )
    return names


def test_designs_are_elaborated_once(elaborated: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert designs.known_digest(TINY) is None
    assert designs.digest(TINY) == designs.digest(TINY) == designs.known_digest(TINY) == designs.digest_of("tiny")
    assert designs.digest(TINY.with_(name="other")) == designs.digest(TINY)
    assert elaborated == ["tiny"]
    monkeypatch.setattr(designs, "sources_digest", lambda: "of other sources")
    assert designs.known_digest(TINY) is None and designs.digest(TINY) == designs.digest_of("tiny")
    assert elaborated == ["tiny", "tiny"]


def test_measurements_are_stale_once_a_design_is_known_to_differ(elaborated: list[str]) -> None:
    same = [(NANO, designs.digest_of("nano")), (TINY, designs.digest_of("tiny"))]
    other = [same[0], (TINY, designs.digest_of("another"))]
    assert designs.changed(same) is None and designs.changed(other) is None and elaborated == []
    designs.digest(TINY)
    assert designs.changed(same) is None and designs.changed(other) == ["tiny"]
    designs.rtlil_of(NANO)  # whoever elaborates keeps the digest
    assert designs.changed(same) == [] and designs.changed(other) == ["tiny"]


def test_a_measurement_without_a_digest_is_of_another_design(elaborated: list[str]) -> None:
    assert designs.changed([(NANO, designs.digest_of("nano")), (TINY, "")]) == ["tiny"] and elaborated == []


@pytest.mark.parametrize("model", [area.load("ecp5"), fmax.load("ecp5")], ids=["area", "fmax"])
def test_models_are_stamped_with_all_their_machines(
    model: area.AreaModel | fmax.FmaxModel, elaborated: list[str]
) -> None:
    assert len(model.designs) >= 8 and model.changed is None
    (config, digest), *_ = model.designs
    designs.digest(config)
    assert digest != designs.known_digest(config) and model.changed == [config.name]


def test_remarks_make_no_other_design() -> None:
    text = 'attribute \\generator "x"\n  attribute \\enum_value_0 "A"\n  attribute \\init 1\'0\n  wire width 1 \\a\n'
    other = text.replace('"x"', '"y"').replace('"A"', '"B"').replace("value_0", "value_1")
    assert designs.digest_of(text) == designs.digest_of(other) != designs.digest_of(text.replace("1'0", "1'1"))


def test_order_makes_no_other_design() -> None:
    """Registers and modules in another order are the same design; the same lines in another register are not."""
    wires = [f"  wire width {width} \\{name}\n" for width, name in ((1, "clk"), (8, "a"), (8, "b"), (2, "c"), (2, "d"))]
    registers = [
        f"  cell $dff {number}\n    parameter \\WIDTH {width}\n    connect \\D \\{d}\n    connect \\Q \\{q}\n  end\n"
        for number, width, d, q in (("$1", 8, "a", "b"), ("$2", 2, "c", "d"))
    ]
    ends = ["connect \\x \\b [0]\n", "connect \\y \\d [0]\n"]

    def digest(wires: list[str], registers: list[str], ends: list[str], modules: tuple[str, ...] = ("a", "b")) -> str:
        body = "\n".join([*wires, *registers, "".join(ends)])
        return designs.digest_of("".join(f"module \\{name}\n\n{body}end\n" for name in modules))

    expected = digest(wires, registers, ends)
    renumbered = [registers[1].replace("$2", "$1"), registers[0].replace("$1", "$2")]
    assert digest(wires[::-1], renumbered, ends[::-1], ("b", "a")) == expected
    exchanged = [registers[0].replace("Q \\b", "Q \\d"), registers[1].replace("Q \\d", "Q \\b")]
    assert digest(wires, exchanged, ends) != expected != digest(wires, registers, ends, ("a", "c"))


@pytest.mark.medium
def test_sources_of_a_design() -> None:
    """The digest under which a design's digest is kept covers every module the NPU is made of."""
    graph = grimp.build_graph("tilewright", cache_dir=None)
    made_of = {
        f"{module.removeprefix('tilewright.').replace('.', '/')}.py"
        for module in graph.find_upstream_modules("tilewright.hw.npu") | {"tilewright.hw.npu"}
    }
    found = {path.relative_to(ROOT).as_posix() for pattern in designs.DESIGN_SOURCES for path in ROOT.glob(pattern)}
    assert {name for name in made_of if not name.startswith("common/")} <= found


def rename_a_module(package: Path) -> None:
    """`hw/parts/queue.py` becomes `hw/parts/fifo.py`, with a comment at its head."""
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("tilewright.hw.parts.queue", "tilewright.hw.parts.fifo"), encoding="utf-8")
    moved = (package / "hw/parts/queue.py").rename(package / "hw/parts/fifo.py")
    moved.write_text("# Moved.\n" + moved.read_text(encoding="utf-8"), encoding="utf-8")


def reset_another_value(package: Path) -> None:
    """The register that holds the core in reset begins with 0."""
    path = package / "hw/npu.py"
    text = path.read_text(encoding="utf-8")
    assert "Signal(init=1), Signal()" in text
    path.write_text(text.replace("Signal(init=1), Signal()", "Signal(), Signal()"), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "fresh"), [(rename_a_module, True), (reset_another_value, False)])
def test_designs_decide_not_sources(edit: Callable[[Path], None], fresh: bool, tmp_path: Path) -> None:
    """A renamed module and a comment leave a measurement fresh, another design makes it stale."""
    package = tmp_path / "tilewright"
    package.mkdir()
    for path in (ROOT / "tilewright").glob("*.py"):
        shutil.copy(path, package)
    for folder in ("common", "isa", "hw", "fpga"):
        shutil.copytree(ROOT / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    edit(package)
    script = "\n".join([
        "from tilewright.fpga.bare import designs",
        "from tilewright.isa.config import PRESETS",
        "print(designs.__file__, designs.sources_digest(), designs.digest(PRESETS['nano']))",
    ])  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TILEWRIGHT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    file, sources, digest = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path) and sources != designs.sources_digest()
    assert (digest == designs.digest(NANO)) is fresh


def test_without_amaranth_no_design_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Energy and area are estimated all the same, with models whose designs nobody can compare."""

    def missing(package: str) -> str:
        raise FpgaError(f"{package} is not installed")

    monkeypatch.setattr(designs, "tool_version", missing)
    assert designs.known_digest(TINY) is None
    assert designs.changed([(TINY, "0" * 64)]) is None
