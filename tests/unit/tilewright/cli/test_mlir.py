"""MLIR as commands write and take it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tests.common.quantized_chain import quantized_chain
from tilewright.cli import cli

pytest.importorskip("xdsl")

from tilewright.compiler.importer.tosa.reading import parse


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    onnx.save(quantized_chain(tail="Softmax"), path)
    return path


def invoke(*args: object, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(a) for a in args], prog_name="tilewright")
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_graph_of_info_compiles_to_the_same_program(chain: Path, tmp_path: Path) -> None:
    text = invoke("info", chain, "--mlir", "-").stdout
    shown = invoke("info", chain, "--config", "tiny", "--mlir", tmp_path / "again.mlir").stdout
    assert "on the NPU" in shown and (tmp_path / "again.mlir").read_text() == text
    invoke("compile", tmp_path / "again.mlir", "--config", "tiny", "-o", tmp_path / "again.twp")
    invoke("compile", chain, "--config", "tiny", "-o", tmp_path / "chain.twp")
    first, second = tw.load(tmp_path / "chain.twp"), tw.load(tmp_path / "again.twp")
    assert (second.instructions, second.constants) == (first.instructions, first.constants)
    assert second.content_hash() == first.content_hash() and len(first.instructions) > 0


def test_all_that_compile_prints_is_mlir(chain: Path, tmp_path: Path) -> None:
    printed = invoke(
        "compile", chain, "--config", "tiny", "-o", tmp_path / "c.twp", "--print-after", "all", "--print-form", "mlir"
    ).stdout
    module, _ = parse(printed, ())
    module.verify()
    assert sum(op.name == "func.func" for op in module.walk()) > 20
    assert "tilewright.qconv" in printed and "tilewright.gemm" in printed


def test_a_graph_has_no_reference_of_its_own(chain: Path, tmp_path: Path) -> None:
    invoke("info", chain, "--mlir", tmp_path / "chain.mlir")
    refused = invoke("run", tmp_path / "chain.mlir", "--check", code=2)
    assert "compare with IREE or onnxruntime the model that it was written from" in refused.stderr


def test_mlir_is_of_models(chain: Path, tmp_path: Path) -> None:
    invoke("compile", chain, "--config", "tiny", "-o", tmp_path / "c.twp")
    refused = invoke("info", tmp_path / "c.twp", "--mlir", "-", code=2)
    assert "is compiled already: --mlir writes the graph of a model" in refused.stderr
    refused = invoke("info", chain, "--mlir", "-", "--json", "-", code=2)
    assert "standard output takes one of --json and --mlir" in refused.stderr
