"""The package `tflite` is loaded table by table, and is itself for everybody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.common.tflite_models import T, unary


def shown(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_network_loads_the_tables_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "network.tflite"
    path.write_bytes(unary("RELU", T("x", (1, 4), "float32"), T("y", (1, 4), "float32")))
    code = (
        "import sys; from tilewright.compiler.importer.tflite import import_tflite; "
        f"import_tflite({str(path)!r}); print(sum(name.startswith('tflite.') for name in sys.modules))"
    )
    assert 5 < int(shown(code)) < 40


def test_others_find_the_whole_package() -> None:
    code = (
        "from tilewright.compiler.importer.tflite.package import tflite as found; found.Model; found.Tensor; "
        "import tflite; assert tflite is found; "
        "from tflite import BuiltinOperator, Model; from tflite.Tensor import Tensor; "
        "assert isinstance(Model, type) and isinstance(Tensor, type) and tflite.Tensor is Tensor; "
        "assert BuiltinOperator.CONV_2D == 3 and callable(tflite.BufferStart); "
        "tflite.Nothing if hasattr(tflite, 'Nothing') else print(tflite.__version__)"
    )
    alone = shown("import tflite; print(tflite.__version__)")
    assert shown(code) == alone


def test_names_equal_those_of_the_package_alone() -> None:
    code = (
        "{first}import tflite; from tflite import *; "
        "print(sorted((name, type(value).__name__) for name, value in vars(tflite).items() if name[0] != '_'))"
    )
    first = "from tilewright.compiler.importer.tflite import schema; schema.tflite.Model; "
    assert shown(code.format(first=first)) == shown(code.format(first=""))


def test_a_package_that_was_there_is_taken() -> None:
    code = (
        "import tflite, sys; from tilewright.compiler.importer.tflite.package import tflite as found; "
        "print(found is tflite, type(tflite).__name__)"
    )
    assert shown(code).split() == ["True", "module"]
