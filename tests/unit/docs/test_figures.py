"""Figures in the documentation are those that the commands beside them print today."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tw
from tests.unit.docs.pages import ROOT, Page, pages, read
from tilewright import zoo
from tilewright.cli import cli
from tilewright.compiler.cpu.ops import RULES
from tilewright.compiler.npu.rewrites import REWRITES
from tilewright.compiler.npu.schedule import search
from tilewright.compiler.passes import FRONTEND
from tilewright.fpga import area, fmax
from tilewright.fpga.boards import BOARDS
from tilewright.isa import timing
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.measure.cpu_cases import CASES
from tilewright.measure.explain import explain
from tilewright.sweep.space import load_space

DIGITS = "examples/digits/digits_int8.onnx"
_MODELS: dict[str, str] = {"digits": DIGITS}


def page(name: str) -> Page:
    return read(Path(name))


def rows(text: str) -> Iterator[list[str]]:
    """Cells of the rows of every table in a page."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def table(name: str) -> dict[str, list[str]]:
    """Rows of a page's tables by their first cell, without marks."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {cells[0].replace("`", ""): cells[1:] for cells in rows(text)}


def plain(line: str) -> str:
    """A line without what differs from run to run: seconds and speeds."""
    return " ".join(re.sub(r"[\d.]+ (s|GMAC/s)\b", r"_ \1", line).split())


def model(name: str) -> bytes:
    return (ROOT / _MODELS[name]).read_bytes() if name in _MODELS else zoo.build_quantized(name)


@pytest.mark.network
@pytest.mark.parametrize("name", ["README.md", "docs/getting-started.md", "docs/simulators.md"])
def test_pages_do_what_they_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python blocks run, and commands after a prompt print the lines shown below them. `cat` shows a file to write."""
    monkeypatch.chdir(tmp_path)
    compared = 0
    for language, text in page(name).blocks:
        if language == "python" and name != "docs/simulators.md":  # which starts from a model of the reader's
            exec(compile(text, name, "exec"), {"__name__": "__main__"})
        for command, *shown in _parts(text):
            if command.startswith("cat "):
                Path(command.split()[1]).write_text("\n".join(shown) + "\n", encoding="utf-8")
                continue
            assert command.startswith("tilewright "), command
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                cli.main(command.split()[1:], prog_name="tilewright")
            assert not ended.value.code, command
            printed = {plain(line) for line in capsys.readouterr().out.splitlines()}
            missing = [line for line in shown if line not in ("", "...") and plain(line) not in printed]
            assert not missing, f"{command} printed {sorted(printed)}"
            compared += len(shown)
    assert compared > 1


@pytest.mark.network
@pytest.mark.parametrize("name", ["docs/simulators.md", "docs/program-file.md", "docs/cpu-kernels.md"])
def test_examples_run(name: str, tmp_path: Path) -> None:
    """Python blocks run after those of getting-started.md, whose model they use; in a process that may be changed."""
    blocks = [*page("docs/getting-started.md").blocks, *page(name).blocks]
    script = "\n".join(text for language, text in blocks if language == "python")
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def _parts(text: str) -> list[list[str]]:
    """The commands of a console block, each with the lines below it."""
    return [part.splitlines() for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]


#: Networks that take long to compile.
_LARGE = {"resnet18": (pytest.mark.slow, pytest.mark.network), "mobilenet_v2": (pytest.mark.long,)}


def cycles_in_readme() -> list[tuple[str, str]]:
    found = []
    for cells in rows((ROOT / "README.md").read_text(encoding="utf-8")):
        match = re.fullmatch(r"`tilewright run (\S+)\.onnx --backend cycle`", cells[-1])
        if match:
            found.append((Path(match[1]).name.removesuffix("_int8"), cells[-2]))
    return found


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "shown"),
    [pytest.param(*row, marks=_LARGE.get(row[0], ())) for row in cycles_in_readme()],
)
def test_cycles_of_readme(name: str, shown: str) -> None:
    program = tw.compile_program(model(name), "base")
    found = explain(program)
    assert shown.startswith(f"{found.cycles:,} cycles")
    assert "of the bound" not in shown or f"{found.bound / found.cycles:.1%}".replace("%", " %") in shown


def test_readme_measures_networks() -> None:
    assert {"digits", "resnet8", "resnet18", "mobilenet_v2"} == {name for name, _ in cycles_in_readme()}


def test_picture_is_of_today() -> None:
    cycles = dict(cycles_in_readme())["resnet8"].split()[0]
    assert f"{cycles} cycles" in (ROOT / "docs/images/timeline.svg").read_text(encoding="utf-8")


AREA = "docs/verification/area-and-clock.md"
MEMORY = {
    "digits": "digits", "keyword spotting (ds_cnn)": "ds_cnn", "ResNet-8": "resnet8",
    "anomaly detection (autoencoder)": "autoencoder", "visual wake words (vww)": "vww",
}  # fmt: skip


@pytest.mark.network
@pytest.mark.parametrize(
    "row", [pytest.param(r, marks=[pytest.mark.long] * (MEMORY[r] in ("vww", "ds_cnn", "resnet8"))) for r in MEMORY]
)
def test_memory_of_networks(row: str) -> None:
    """The table of docs/fpga.md: KiB of instructions, constants and arena."""
    needed = []
    for config in ("tiny", "small"):
        program = tw.compile_program(model(MEMORY[row]), config)
        count = len(program.instructions) // INSTRUCTION_BYTES
        nbytes = count * INSTRUCTION_BYTES + len(program.constants) + program.arena_bytes
        needed.append(str(-(-nbytes // 1024)))
    assert table("docs/fpga.md")[row] == needed


def test_points_of_boards() -> None:
    """docs/boards.md and docs/fpga.md name every point of the boards with its clock and memory."""
    boards, built = table("docs/boards.md"), (ROOT / "docs/fpga.md").read_text(encoding="utf-8")
    for board in BOARDS.values():
        (row,) = [cells for name, cells in boards.items() if name.startswith(f"[{board.name}]")]
        for config, point in board.points.items():
            assert f"`{config}` at {point.clock_mhz:g} MHz" in row[1]
            shown = f"--board {board.name} --config {config} -o bits` |"
            (line,) = [line for line in built.splitlines() if shown in line]
            assert f"| {point.clock_mhz:g} MHz, highest " in line


def test_constants_of_timing() -> None:
    """The first table of docs/machine.md has the values of `base`."""
    config, compared = preset("base"), 0
    for name, cells in table("docs/machine.md").items():
        names = [re.sub(r"\(config\)", "", n.strip()) for n in name.split(",")]
        if len(cells) != 2 or not all(hasattr(timing, n) for n in names):
            continue
        values = [getattr(timing, n) for n in names]
        values = [v(config) if callable(v) else v for v in values]
        assert cells[0] == ", ".join(map(str, values)), name
        compared += len(values)
    assert compared > 10


def test_error_codes() -> None:
    shown = table("docs/errors.md")
    assert [shown[str(code.value)][0] for code in ErrorCode if code.value > 3] == [c.name for c in ErrorCode if c > 3]


def test_passes() -> None:
    """docs/compiler.md lists the passes of the front end and the rewrites for the NPU in their order."""
    names = [step.name for step in (*FRONTEND, *REWRITES)]
    assert [name for name in table("docs/compiler.md") if name in names] == names
    text = (ROOT / "docs/compiler.md").read_text(encoding="utf-8")
    assert f"{len(FRONTEND)} passes" in text
    two, three = (f"{instructions:,}" for instructions in search.MORE[2:])
    assert f"{two} and {three} instructions" in text
    assert {f"{search.INSTRUCTIONS[part]:,} instructions measured" in text for part in (1, 2)} == {True}


def test_rules_of_cpu_kernels() -> None:
    found = re.search(r"about (\d+) op names", (ROOT / "docs/cpu-kernels.md").read_text(encoding="utf-8"))
    assert found and abs(int(found[1]) - len(RULES)) <= 5


def test_cases_of_cpu_benchmark() -> None:
    assert f": {len(CASES)} cases beside" in (ROOT / "docs/cpu-kernels.md").read_text(encoding="utf-8")


@pytest.mark.medium
@pytest.mark.parametrize("family", area.calibrated())
def test_held_back_areas(family: str) -> None:
    """docs/verification/area-and-clock.md: the area model beside the syntheses it was not fitted to."""
    stored = json.loads(area.calibration_file(family).read_text(encoding="utf-8"))
    shown = [tuple(cells) for cells in rows((ROOT / AREA).read_text(encoding="utf-8")) if len(cells) == 5]
    for point in stored["points"]:
        if point["held_back"]:
            found = area.estimate(NpuConfig.from_dict(point["config"]), family)
            lut, ff = (f"{getattr(found, key) / point[key] * 100 - 100:+.1f} %" for key in ("lut", "ff"))
            assert any(row[1:] == (f"{point['lut']:,}", lut, f"{point['ff']:,}", ff) for row in shown), (point, lut, ff)


def test_fingerprints() -> None:
    """Wherever a preset is shown with its fingerprint, it is that of today."""
    found = 0
    for other in pages():
        text = (ROOT / other.path).read_text(encoding="utf-8")
        for name, fingerprint in re.findall(r"(tiny|small|base|large)'? \(([0-9a-f]{16})\)", text):
            assert fingerprint == preset(name).fingerprint, other.path
            found += 1
    assert found


def test_points_of_example_sweeps() -> None:
    """docs/sweeps.md says how many points each space has."""
    shown = table("docs/sweeps.md")
    for path in (ROOT / "examples/sweeps").glob("*.toml"):
        space = load_space(path)
        assert shown[path.name][1] == str(space.budget if space.method != "grid" else space.size), path.name


def test_pages_agree() -> None:
    """Figures that take hours to measure are the same on every page that names them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    suite = table("docs/onnx.md")["all"]
    assert f"{int(suite[1]):,} of {int(suite[0]):,} pass, {int(suite[0]) - int(suite[1])} excluded" in readme
    networks = table("docs/cpu-kernels.md")["ResNet-18, MobileNetV2, transformer (float32, 224 x 224)"][0].split(", ")
    assert "float ResNet-18 {}, MobileNetV2 {}, transformer {}".format(*networks) in readme
    reports = (ROOT / "docs/boards.md").read_text(encoding="utf-8").split("\n board ")[1:]
    for report in reports:
        board, config = re.findall(r"^ +(\w+), configuration (\w+) ", report)[0]
        built = table("docs/fpga.md")[f"tilewright fpga build --board {board} --config {config} -o bits"]
        assert built[:4] == [
            f"{float(n):,g}" for n in re.findall(r"^ (?:LUT|FF|DSP|block RAM) +([\d.]+) of", report, re.M)
        ]
        clock, highest = re.findall(r"^ clock +([\d.]+) MHz, highest ([\d.]+) MHz", report, re.MULTILINE)[0]
        assert built[4].startswith(f"{float(clock):g} MHz, highest {highest}")
    assert len(reports) == 2


@pytest.mark.medium
def test_placed_clocks() -> None:
    """docs/verification/area-and-clock.md: the clock's model beside all placements it rests on or is compared with."""
    stored = json.loads(fmax.calibration_file("ecp5").read_text(encoding="utf-8"))
    text = (ROOT / AREA).read_text(encoding="utf-8")
    shown = [cells[1:] for cells in rows(text) if len(cells) == 5]
    model = fmax.load("ecp5")
    for point in stored["points"]:
        error = model.placed_mhz(NpuConfig.from_dict(point["config"])) / point["placed_mhz"] - 1
        use = "held back" if point["held_back"] else "fitted"
        assert [use, f"{point['lut']:,}", f"{point['placed_mhz']:.1f}", f"{error * 100:+.1f} %"] in shown, point
    assert f"times {stored['routed']:.2f}" in text
