"""Weights of 2, 4 and 8 bits with a scale per block, in com.microsoft: MatMulNBits, GatherBlockQuantized.

The packed bytes become tensors of uint2, uint4 or uint8 and a DequantizeLinear with `block_size`, the form of such
weights everywhere else. Activations stay floats: `accuracy_level` limits how coarsely a kernel may round them, and not
rounding is always allowed.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.attention_core import MS, cast, shaped
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

_TYPES = {2: np.dtype(ml_dtypes.uint2), 4: np.dtype(ml_dtypes.uint4), 8: np.dtype(np.uint8)}


def unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """Unpacks the elements of the last axis of bytes, low bits first, as uint8."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (data[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*data.shape[:-1], -1)


@handles("MatMulNBits", domain=MS)
def mat_mul_n_bits(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs A [.., K], B [N, blocks, block_size * bits / 8], scales and zero_points per block, g_idx [K] (the block of
    each row where they do not follow each other), bias [N]. The result is A x dequantised B' + bias in float32, rounded
    once.
    """
    node.accept("weight_prepacked", 0)
    bits = _bits(node)
    k, n, block = (node.positive(name, 0) for name in ("K", "N", "block_size"))
    _check_block(node, block)
    blocks = -(-k // block)
    a, dtype = node.input(0), builder.tensor(node.input(0)).dtype
    if not builder.shape(a) or builder.shape(a)[-1] != k:
        raise CompileError(f"{node.label}: {a!r} has shape {list(builder.shape(a))}, and K={k}")
    packed = _sized(builder, node, 1, "B", n * blocks * (block * bits // 8)).reshape(n, -1)
    weights = unpacked(packed, bits)[:, :k].T
    scales = _sized(builder, node, 2, "scales", n * blocks).astype(np.float32).reshape(n, blocks).T
    groups = _groups(builder, node, k, block, blocks)
    zeros = _zero_points(builder, node, bits, n, blocks).T
    if groups is not None:  # every row with the scale of its block
        scales, zeros, block = scales[groups], zeros[groups], 1
    real = _dequantized(builder, weights, scales, zeros, block, bits)
    y = builder.emit("MatMul", [cast(builder, a, np.float32), real])
    if node.input(5):
        y = builder.emit("Add", [y, cast(builder, node.input(5), np.float32)])
    builder.bind(cast(builder, y, dtype), node.output(0))


@handles("GatherBlockQuantized", domain=MS)
def gather_block_quantized(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs data (uint4, int4, or uint8 with 8 / bits elements per byte), indices, scales, zero_points; the result is
    Gather of the dequantised data. An index outside of the axis gives zeros.
    """
    data, scales = (builder.need_const(node.input(i), what) for i, what in ((0, "data"), (2, "scales")))
    bits, block, rank = _bits(node), int(node.attrs.get("block_size", 128)), data.ndim
    _check_block(node, block)
    taken, axis = (int(node.attrs.get(f"{name}_axis", k)) for k, name in enumerate(("gather", "quantize")))
    if not (-rank <= taken < rank and -rank <= axis < rank):
        raise CompileError(f"{node.label}: gather_axis={taken}, quantize_axis={axis} of data {list(data.shape)}")
    taken, axis = taken % rank, axis % rank
    zeros = builder.need_const(node.input(3), "zero_points") if node.input(3) else None
    if taken == axis:
        raise UnsupportedError(f"{node.label}: gather_axis and quantize_axis are both {axis}; they must differ")
    if data.dtype == np.uint8:
        if taken != 0 or axis != rank - 1 or rank < 2:
            raise UnsupportedError(
                f"{node.label}: uint8 data {list(data.shape)} with gather_axis={taken} and quantize_axis={axis} is not "
                f"supported; 0 and {rank - 1}, the last of two or more, are"
            )
        data = unpacked(data, bits)
        if zeros is None:
            zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
        else:
            zeros = unpacked(zeros, bits)[..., : scales.shape[-1]]
    elif data.dtype not in (ml_dtypes.uint4, ml_dtypes.int4) or bits != 4:
        raise UnsupportedError(
            f"{node.label}: data of {data.dtype} with bits={bits} is not supported; uint8 with 2, 4 or 8 bits, "
            "uint4 and int4 are"
        )
    kind = np.int8 if data.dtype == ml_dtypes.int4 else np.uint8  # Gather moves whole bytes
    zeros = np.zeros(scales.shape, kind) if zeros is None else zeros
    expected = tuple(-(-d // block) if i == axis else d for i, d in enumerate(data.shape))
    if scales.shape != expected or zeros.shape != expected:
        raise CompileError(
            f"{node.label}: scales {list(scales.shape)} and zero points {list(zeros.shape)} must be {list(expected)}"
        )
    indices, length = node.input(1), data.shape[taken]
    low, high = (builder.constant("limit", n, builder.tensor(indices).dtype) for n in (-length, length - 1))
    inside = builder.emit("Max", [builder.emit("Min", [indices, high]), low])
    take = lambda name: builder.emit("Gather", [name, inside], attrs={"axis": taken})
    # Codes and scales are taken first, so that only the rows wanted are dequantised.
    places = len(builder.shape(indices))
    q, s, z = (take(builder.constant("table", x)) for x in (data.astype(kind), scales, zeros.astype(kind)))
    moved = axis if axis < taken else axis + places - 1
    real = builder.emit("DequantizeLinear", [q, s, z], attrs={"axis": moved, "block_size": block})
    valid = builder.emit("Equal", [inside, indices])
    wide = [1] * taken + list(builder.shape(indices)) + [1] * (rank - 1 - taken)
    none = builder.constant("none", 0, scales.dtype)
    builder.emit("Where", [shaped(builder, valid, wide), real, none], [node.output(0)])


def _bits(node: OnnxNode) -> int:
    node.accept("bits", *_TYPES)
    return int(node.attrs.get("bits", 4))


def _check_block(node: OnnxNode, block: int) -> None:
    if block < 16 or block & (block - 1):
        raise UnsupportedError(f"{node.label}: block_size={block} is not supported; powers of two from 16 are")


def _sized(builder: OnnxBuilder, node: OnnxNode, index: int, what: str, size: int) -> np.ndarray:
    value = builder.need_const(node.input(index), what)
    if value.size != size:
        raise CompileError(
            f"{node.label}: {what} {node.input(index)!r} has shape {list(value.shape)}, not the {size} elements that "
            f"N={node.attrs['N']}, K={node.attrs['K']}, block_size={node.attrs['block_size']} ask for"
        )
    return value


def _zero_points(builder: OnnxBuilder, node: OnnxNode, bits: int, n: int, blocks: int) -> np.ndarray:
    """The zero points [N, blocks] as uint8, or as float32 where they are not integers."""
    if not node.input(3):
        return np.full((n, blocks), 1 << (bits - 1), np.uint8)
    if builder.tensor(node.input(3)).dtype == np.uint8:
        bytes_a_row = -(-blocks * bits // 8)
        packed = _sized(builder, node, 3, "zero_points", n * bytes_a_row)
        if node.input(4):  # onnxruntime's CPU kernel reads packed ones only without g_idx
            return np.full((n, blocks), 1 << (bits - 1), np.uint8)
        return unpacked(packed.reshape(n, bytes_a_row), bits)[:, :blocks]
    return _sized(builder, node, 3, "zero_points", n * blocks).astype(np.float32).reshape(n, blocks)


def _groups(builder: OnnxBuilder, node: OnnxNode, k: int, block: int, blocks: int) -> np.ndarray | None:
    """The block of each row, None where rows of a block follow each other."""
    if not node.input(4):
        return None
    if int(node.attrs.get("bits", 4)) != 4:
        raise UnsupportedError(f"{node.label}: g_idx with bits={node.attrs['bits']} is not supported; bits=4 is")
    groups = _sized(builder, node, 4, "g_idx", k).astype(np.int64).reshape(-1)
    if groups.min() < 0 or groups.max() >= blocks:
        raise CompileError(f"{node.label}: g_idx {node.input(4)!r} reaches outside of the {blocks} blocks")
    return None if np.array_equal(groups, np.arange(k) // block) else groups


def _dequantized(
    builder: OnnxBuilder, weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray, block: int, bits: int
) -> str:
    """Emits (weights - zeros) * scales in float32: [K, N], one scale and zero point for `block` rows of a column."""
    kind = _TYPES[bits]
    whole = zeros.astype(kind)
    if np.array_equal(whole.astype(np.float32), zeros.astype(np.float32)):
        inputs = [builder.constant(name, np.ascontiguousarray(x)) for name, x in (
            ("weights", weights.astype(kind)), ("scales", scales), ("zero_points", whole))]  # fmt: skip
        return builder.emit("DequantizeLinear", inputs, attrs={"axis": 0, "block_size": block})
    spread = lambda x: np.repeat(x, block, axis=0)[: len(weights)]
    real = (weights.astype(np.float32) - spread(zeros)) * spread(scales)
    return builder.constant("weights", np.ascontiguousarray(real, np.float32))
