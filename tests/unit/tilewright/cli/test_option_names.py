"""Messages recommend only options that the command at hand has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.common.onnx_models import graph_of
from tests.common.paths import ROOT
from tilewright import sweep
from tilewright.cli import cli
from tilewright.errors import UsageError
from tilewright.measure import speed

COMPILING = ("bench", "compare", "compile", "explain", "info", "run", "sweep", "tune")

#: Modules outside `cli/commands` whose messages name options, with the commands that show them: `fpga build` is a
#: command of a group. A module that is not here fails the test until it is.
SHOWN_BY = {
    "tilewright/additions/generate/command.py": ("generate",),
    "tilewright/additions/prove/certificate.py": ("compile",),  # which made the program
    "tilewright/additions/prove/command.py": ("prove",),
    "tilewright/additions/generate/feed.py": ("generate",),
    "tilewright/additions/generate/state_file.py": ("generate",),
    "common/listening.py": ("generate", "serve"),
    "compiler/graph/ops/kernel.py": COMPILING,
    "compiler/importer/onnx/inputs.py": (*COMPILING, "quantize"),
    "compiler/importer/tflite/__init__.py": tuple(c for c in COMPILING if c not in ("bench", "sweep")),
    "driver/board.py": ("run",),
    "fpga/build.py": ("fpga build",),
    "fpga/points.py": ("fpga build",),
    "fpga/fit.py": ("fpga build",),
    "fpga/report.py": ("fpga build",),
    "tilewright/measure/off_npu.py": ("quantize",),  # which it advises
    "fpga/flows/ecp5.py": ("fpga build",),
    "fpga/flows/watch.py": ("fpga build",),
    "fpga/standalone/record.py": ("fpga build",),
    "fpga/zynq/boards.py": ("fpga export",),
    "tilewright/cli/arguments.py": (*COMPILING, "quantize"),
    "tilewright/cli/fixed_values.py": ("compile", "run"),
    "tilewright/cli/group.py": (*COMPILING, "quantize", "fpga build", "serve"),
    "tilewright/cli/input_files.py": ("run",),
    "tilewright/cli/job.py": ("run",),
    "tilewright/cli/run_report.py": ("run",),
    "tilewright/cli/memory_options.py": ("compile", "explain", "compare", "run", "tune"),
    "tilewright/export/c_program.py": ("compile",),  # which made the program
    "tilewright/measure/latency.py": ("explain", "run"),
    "tilewright/measure/mlperf_tiny.py": ("mlperf-tiny",),
    "tilewright/measure/roofline.py": ("explain",),
    "tilewright/additions/quantize/decision.py": ("quantize",),
    "tilewright/additions/quantize/command.py": ("quantize",),
    "tilewright/additions/quantize/model.py": ("quantize",),
    "tilewright/additions/quantize/batch.py": ("quantize",),
    "tilewright/additions/quantize/image_samples.py": ("quantize",),
    "tilewright/additions/quantize/metric.py": ("quantize",),
    "tilewright/additions/quantize/model_inputs.py": ("quantize",),
    "tilewright/additions/quantize/prepare.py": ("quantize",),
    "tilewright/additions/quantize/recurrent.py": ("quantize",),
    "tilewright/additions/quantize/samples.py": ("quantize",),
    "tilewright/runtime/checks.py": ("compile",),  # which made the program
    "tilewright/tuning/schedule_file.py": ("compile",),
    "tilewright/sweep/networks.py": ("sweep",),
    "tilewright/sweep/options.py": ("sweep",),
    "tilewright/sweep/metrics.py": ("sweep",),
    "tilewright/additions/remote/backend.py": ("run",),
    "tilewright/additions/remote/command.py": ("serve",),
    "tilewright/additions/standalone/command.py": ("fpga ask", "fpga image", "fpga build"),
    "tilewright/additions/standalone/firmware.py": ("compile",),  # which made the program
    "tilewright/store/trust.py": ("run",),
}

#: What is no message of a command: tools with a parser of their own, options of other programs, generated text.
ELSEWHERE = (
    "compiler/importer/mlir.py", "compiler/importer/tosa/",  # MLIR's tools
    "hw/", "isa/generate/", "simulator/generate.py", "fpga/sim/", "fpga/area/", "fpga/bare/", "fpga/flows/xilinx7/",
    "fpga/zynq/export", "tilewright/additions/remote/generate", "tilewright/measure/compile_speed.py",
    "tilewright/registry.py", "tilewright/cli/__init__.py",
)  # fmt: skip

#: Modules of several commands.
GROUPS = (
    "tilewright/additions/standalone/command",
    *(f"tilewright/cli/commands/{name}" for name in ("config", "fpga", "zoo")),
)

_OPTION = re.compile(r"(?<![\w\-{])--[a-z][a-z\d-]*[a-z\d]")
_QUOTED = re.compile(r"`([^`]*)`")


def command(name: str) -> click.Command:
    found: click.Command = cli
    for part in name.split():
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), part)
        assert below is not None, name
        found = below
    return found


def options(name: str) -> set[str]:
    return {o for p in command(name).params for o in (*p.opts, *p.secondary_opts)} | {"--help"}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that the module raises, prints or returns: all but docstrings and declarations of options."""
    source = path.read_text(encoding="utf-8")
    if not _OPTION.search(source):  # most modules
        return
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        declares = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "option"
        if declares or (
            isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("run", "startswith", "index")
        ):
            left_out.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out.update(id(inner) for inner in node.values)
            yield node.lineno, "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def messages() -> Iterator[tuple[str, int, str]]:
    """Module, line and text of every message that names an option."""
    for package in ("common", "compiler", "driver", "fpga", "isa", "simulator", "tilewright"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            if module.startswith(ELSEWHERE):
                continue
            for line, text in texts(path):
                if " " in text.strip() and _OPTION.search(text):
                    yield module, line, text


def owners(module: str) -> tuple[str, ...]:
    """The commands that show the module's messages."""
    if module in SHOWN_BY:
        return SHOWN_BY[module]
    prefix = "tilewright/cli/commands/"
    assert module.startswith(prefix), f"{module} names options: say in SHOWN_BY which commands show that"
    stem = module.removeprefix(prefix).removesuffix(".py")
    if stem in ("config", "fpga", "zoo"):
        group = command(stem)
        assert isinstance(group, click.Group)
        return tuple(f"{stem} {name}" for name in group.list_commands(click.Context(group)))
    if stem.startswith("fpga_"):
        return (f"fpga {stem.removeprefix('fpga_')}",) if stem != "fpga_zynq" else ("fpga export", "fpga fetch-tools")
    return ("tune",) if stem == "tune_cpu" else (stem.replace("_", "-"),)


@pytest.mark.medium
def test_messages_name_options_that_there_are() -> None:
    wrong: list[tuple[str, ...]] = []
    count = 0
    for module, line, text in messages():
        if "Examples:" in text:  # tests of the documentation run those
            continue
        for quoted in _QUOTED.findall(text):
            words = quoted.split()
            if words[:1] == ["tilewright"] and len(words) > 1:
                name = " ".join(words[1:3]) if words[1] in ("fpga", "config", "zoo", "trust") else words[1]
                wrong += [(module, str(line), o) for o in _OPTION.findall(quoted) if o not in options(name)]
        named = set(_OPTION.findall(_QUOTED.sub("", text)))
        for name in owners(module):
            missing = named - options(name)
            if module.startswith(GROUPS):  # a module of several commands: one must have it
                missing = {o for o in missing if not any(o in options(other) for other in owners(module))}
            wrong += [(module, str(line), name, option) for option in missing]
        count += 1
    assert not wrong
    assert count > 40


@pytest.mark.medium
def test_table_has_no_stale_modules() -> None:
    named = {module for module, _, _ in messages()}
    assert set(SHOWN_BY) <= named


@pytest.fixture
def open_model(tmp_path: Path) -> Path:
    """A network of images whose batch and size are open."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    graph = graph_of(nodes, {"x": ["N", 3, "H", "W"]}, {"y": ["N", 4, "H", "W"]})
    graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, tmp_path / "open.onnx")
    return tmp_path / "open.onnx"


@pytest.mark.parametrize(
    "name", ["bench --model", "sweep space.toml -o out --models", "info", "explain", "tune --log log"]
)
def test_open_sizes_get_an_example_that_works(
    name: str, open_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(open_model.parent)
    Path("space.toml").write_text('[axes]\nblock_in = [8, 16]\n[objective]\nminimise = ["cycles"]\n', encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        cli.main([*name.split(), str(open_model)], prog_name="tilewright")
    assert ended.value.code == 2
    assert "set it with --shape x=1,3,224,224" in capsys.readouterr().err


def test_bench_takes_the_shape(open_model: Path) -> None:
    found = speed.measure(open_model, shapes={"x": [1, 3, 8, 8]}, runs=1)
    assert found["macs"] == 8 * 8 * 4 * 27


def test_sweep_takes_the_shape(open_model: Path) -> None:
    (small,) = sweep.resolve([str(open_model)], {"x": [1, 3, 8, 8]})
    (large,) = sweep.resolve([str(open_model)], {"x": [1, 3, 16, 16]})
    assert small.digest != large.digest
    shape = onnx.load_from_string(small.content).graph.input[0].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [1, 3, 8, 8]
    with pytest.raises(UsageError, match="no ONNX file of the sweep has such an input"):
        sweep.resolve(["resnet8"], {"x": [1, 3, 8, 8]})
    with pytest.raises(UsageError, match=r"open\.onnx: .* fixes it to 3"):
        sweep.resolve([str(open_model)], {"x": [1, 4, 8, 8]})
