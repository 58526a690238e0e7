"""Weights of 4 and 2 bits, sparse weights, and sizes that the file leaves open."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.tflite.packed import coordinates, unpacked


@pytest.mark.parametrize("bits", [4, 2])
def test_narrow_elements(bits: int) -> None:
    """Every value, the first element in the lowest bits, with an odd count."""
    values = np.arange(-(1 << bits - 1), 1 << bits - 1).repeat(3)[:-1]
    each, raw = 8 // bits, bytearray(-(-values.size * bits // 8))
    for k, v in enumerate(values):
        raw[k // each] |= (int(v) & (1 << bits) - 1) << bits * (k % each)
    found = unpacked(bytes(raw), bits, values.size)
    assert found.dtype == np.int8 and found.tolist() == values.tolist()
    with pytest.raises(CompileError, match="elements of"):
        unpacked(bytes(raw) + b"\0", bits, values.size)


def sparsity(order: list[int], blocks: list[int], axes: list[Any]) -> Any:
    """A table of the schema; an axis is its size, or (segments, indices) with numpy arrays."""
    b = flatbuffers.Builder(256)
    metas = []
    kinds = {"uint8": "Uint8Vector", "uint16": "Uint16Vector", "int32": "Int32Vector"}
    for axis in axes:
        tables = []
        for values in () if isinstance(axis, int) else axis:
            vector, kind = b.CreateNumpyVector(values), kinds[values.dtype.name]
            getattr(tflite, f"{kind}Start")(b)
            getattr(tflite, f"{kind}AddValues")(b, vector)
            tables.append((getattr(tflite.SparseIndexVector, kind), getattr(tflite, f"{kind}End")(b)))
        tflite.DimensionMetadataStart(b)
        if tables:
            tflite.DimensionMetadataAddFormat(b, tflite.DimensionType.SPARSE_CSR)
            tflite.DimensionMetadataAddArraySegmentsType(b, tables[0][0])
            tflite.DimensionMetadataAddArraySegments(b, tables[0][1])
            tflite.DimensionMetadataAddArrayIndicesType(b, tables[1][0])
            tflite.DimensionMetadataAddArrayIndices(b, tables[1][1])
        else:
            tflite.DimensionMetadataAddDenseSize(b, axis)
        metas.append(tflite.DimensionMetadataEnd(b))
    b.StartVector(4, len(metas), 4)
    for meta in reversed(metas):
        b.PrependUOffsetTRelative(meta)
    described = b.EndVector()
    ordered, mapped = (b.CreateNumpyVector(np.array(v, np.int32)) for v in (order, blocks))
    tflite.SparsityParametersStart(b)
    tflite.SparsityParametersAddTraversalOrder(b, ordered)
    tflite.SparsityParametersAddBlockMap(b, mapped)
    tflite.SparsityParametersAddDimMetadata(b, described)
    b.Finish(tflite.SparsityParametersEnd(b))
    return tflite.SparsityParameters.GetRootAs(bytes(b.Output()), 0)


def believed(length: int, _what: str) -> int:
    return length


def test_sparse_rows() -> None:
    """[[5, 0, 7], [0, 0, 0], [0, 9, 0]], a row at a time."""
    u8 = lambda *v: np.array(v, np.uint8)
    at = coordinates(sparsity([0, 1], [], [3, (u8(0, 2, 2, 3), u8(0, 2, 1))]), (3, 3), believed)
    assert at.tolist() == [[0, 0], [0, 2], [2, 1]]


def test_sparse_blocks() -> None:
    """The example of the schema: 4x4 of 2x2 blocks of which the last one of the first row and the first of the
    second row are stored, columns of a block first."""
    i32, u16 = (lambda *v: np.array(v, np.int32)), (lambda *v: np.array(v, np.uint16))
    table = sparsity([0, 1, 3, 2], [0, 1], [2, (i32(0, 1, 2), u16(1, 0)), 2, 2])
    at = coordinates(table, (4, 4), believed)
    first = [[0, 2], [1, 2], [0, 3], [1, 3]]
    assert at.tolist() == first + [[r + 2, c - 2] for r, c in first]


@pytest.mark.parametrize(
    ("order", "blocks", "axes"),
    [
        ([0, 0], [], [3, 3]),
        ([0, 1], [], [3, 9]),
        ([0, 1], [], [3, (np.array([0, 2, 1, 3], np.uint8), np.array([0, 1, 2], np.uint8))]),
        ([0, 1], [], [3, (np.array([0, 1, 2, 3], np.uint8), np.array([0, 1, 7], np.uint8))]),
        ([0, 1, 2], [5], [3, 3, 1]),
    ],
)
def test_damaged_sparse_tensors(order: list[int], blocks: list[int], axes: list[Any]) -> None:
    with pytest.raises(CompileError):
        coordinates(sparsity(order, blocks, axes), (3, 3), believed)


def test_sizes_left_open_are_named() -> None:
    """A window that does not fit because the file holds 1 for a size that is open."""
    options = ("Pool2DOptions", {"Padding": 1, "StrideH": 1, "StrideW": 1, "FilterHeight": 1, "FilterWidth": 8})
    x = T("sound", (1, 1, 1, 3), "float32", signature=(1, 1, -1, 3))
    data = Model(
        [x, T("y", (1, 1, 1, 3), "float32", signature=(1, 1, -1, 3))],
        [Op("MAX_POOL_2D", ["sound"], ["y"], options)], ["sound"], ["y"],
    ).build()  # fmt: skip
    with pytest.raises(CompileError, match=r"input 'sound' leaves dimension 2 open.*--shape sound=1,1,\.\.\.,3"):
        tw.compile(data, "tiny")
    assert tw.compile(data, "tiny", shapes={"sound": (1, 1, 9, 3)}).outputs[0].shape == (1, 1, 2, 3)
