"""A quantised op is added by the steps of `docs/compiler.md`, from outside: QSquare, in the files of `square/`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.common import onnx_models
from tests.common.paths import ROOT
from tests.reference.quantized_models import Model
from tilewright.compiler.cpu.ops import RULES as KERNELS
from tilewright.compiler.graph.graph import QUANTIZED_OPS
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.npu.ops import NPU_OPS
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes.integer_rules import RULES
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

FOLDER = Path(__file__).parent / "square"
FILES = ("op", "rule", "kernel", "npu")
BASE = PRESETS["base"]


@pytest.fixture(scope="module", autouse=True)
def square() -> Iterator[None]:
    """Imports the files, and takes the op away again, so that other tests see the compiler as it is."""
    rules = {op: list(found) for op, found in RULES.items()}
    tables = [(table, dict(table)) for table in (QUANTIZED_OPS, KERNELS, NPU_OPS)]
    names = [f"tests.unit.compiler.square.{name}" for name in FILES]
    for name in names:
        sys.modules.pop(name, None)  # a process may come back to this file: imported again, they register again
    for name in names:
        importlib.import_module(name)
    yield
    for table, before in [*tables, (RULES, rules)]:
        table.clear()
        table.update(before)  # type: ignore[arg-type]


def squared(dtype: type, seed: int) -> Model:
    """A convolution and the square of its result."""
    model = Model(dtype, seed)
    x = model.input((1, 4, 9, 7))
    conv = model.op("Conv", x, model.weights((6, 4, 3, 3)), kernel_shape=[3, 3])
    y = model.requantized(conv, 0.0517)
    model.output(model.requantized(model.op("Mul", y, y), 0.0213))
    return model


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "config, options, where",
    [
        (BASE, CompileOptions(), "npu"),
        (BASE.with_(name="no_units", depthwise=0, lut_tables=0, row_unit=0), CompileOptions(keep="all"), "npu"),
        (BASE, CompileOptions(cpu_only=True), "cpu"),
    ],
)
def test_square(dtype: type, seed: int, config: NpuConfig, options: CompileOptions, where: str) -> None:
    model = squared(dtype, seed)
    proto, feeds = model.build(), model.feeds()
    program = compile_graph(import_onnx(proto), config, options)
    assert [layer.where for layer in program.layers if "QSquare" in layer.op] == [where]
    got = Executor(program, FunctionalDevice(config)).run(feeds).outputs
    for name, want in onnx_models.run(proto, feeds).items():
        np.testing.assert_array_equal(got[name], want)


def test_printing() -> None:
    printed: list[str] = []
    options = CompileOptions(print_after=("fuse_quantization",))
    compile_graph(import_onnx(squared(np.int8, 0).build()), BASE, options, out=lambda text: printed.append(str(text)))
    assert "QSquare(" in "".join(printed) and "{out_max=127}" in "".join(printed)


def test_files() -> None:
    """The steps name as many files as the example has, one kind of file each."""
    page = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    steps = page[page.index("A quantised op is") :]
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", *FILES}
    for name in FILES:
        assert f"tests/unit/compiler/square/{name}.py" in steps
