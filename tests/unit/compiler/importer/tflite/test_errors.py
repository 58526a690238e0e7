"""Damaged and unsupported TFLite files end in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.common.tflite_models import Model, Op, T, unary
from tests.unit.compiler.importer.tflite.tflite_ops import CASES
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.tflite import import_tflite


def test_unknown_operator_is_named() -> None:
    x = T("x", (1, 4), "int8", 0.1, 0)
    data = unary("UNIQUE", x, T("y", (1, 4), "int8", 0.1, 0), None, 2)
    with pytest.raises(UnsupportedError, match=r"UNIQUE \(op 0, version 2\) is not supported") as error:
        import_tflite(data)
    assert "\n" not in str(error.value)


def test_unknown_custom_operator_is_named() -> None:
    x, y = T("x", (1, 4), "float32"), T("y", (1, 4), "float32")
    with pytest.raises(
        UnsupportedError, match=r"PosenetDecoderOp \(op 0, version 1\) is not supported: a custom operator"
    ):
        import_tflite(unary("PosenetDecoderOp", x, y))


@pytest.mark.parametrize(
    ("op", "remedy"),
    [
        ("WHILE", "WHILE at run time: export the model without, or as ONNX"),
        ("TANH", "export the one that is wanted alone"),
    ],
)
def test_several_graphs_say_what_to_do(op: str, remedy: str) -> None:
    x, y = T("x", (1, 4), "float32"), T("y", (1, 4), "float32")
    with pytest.raises(UnsupportedError, match=rf"2 subgraphs; one is accepted\..*{remedy}"):
        import_tflite(Model([x, y], [Op(op, ["x"], ["y"])], ["x"], ["y"], copies=2).build())


def test_wrong_shape() -> None:
    with pytest.raises(CompileError, match="shape"):
        import_tflite(unary("TANH", T("x", (1, 4), "int8", 0.1, 0), T("y", (1, 5), "int8", 0.1, 0)))


def test_cycle() -> None:
    tensors = [T("x", (1, 4), "int8", 0.1, 0), T("y", (1, 4), "int8", 0.1, 0)]
    with pytest.raises(CompileError, match="no operator before it makes"):
        import_tflite(Model(tensors, [Op("TANH", ["y"], ["y"])], ["x"], ["y"]).build())


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cannot be read"):
        import_tflite(tmp_path / "none.tflite")


@pytest.mark.medium
@pytest.mark.parametrize("op", ["CONV_2D", "ADD", "MEAN", "TRANSPOSE_CONV"])
def test_damage(op: str) -> None:
    """Every truncation and many flipped bytes: imported, or one CompileError."""
    r = np.random.default_rng(1)
    data = CASES[op](op, r, "int8")
    broken = [data[:n] for n in range(0, len(data), 7)]
    for _ in range(400):
        copy = bytearray(data)
        for _ in range(int(r.integers(1, 4))):
            copy[int(r.integers(len(copy)))] = int(r.integers(256))
        broken.append(bytes(copy))
    refused = 0
    for content in broken:
        try:
            import_tflite(content)
        except CompileError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > len(data) // 8
