"""MatMulNBits and GatherBlockQuantized against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.common.contrib_models import Fixed, Nodes, refusal
from tilewright.compiler.importer.onnx import import_onnx


def weights(r: np.random.Generator, k: int, n: int, block: int, bits: int, flat: bool = False) -> list[Any]:
    """B, scales of both signs with a zero among them, packed zero points."""
    blocks = -(-k // block)
    scales = (r.uniform(0.01, 0.05, (n, blocks)) * r.choice([-1, 1], (n, blocks))).astype(np.float32)
    scales[0, 0] = 0
    zeros = r.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
    packed = r.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    return [packed, *(x.reshape(-1) if flat else x for x in (scales, zeros))]


@pytest.mark.medium
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_mat_mul_n_bits(bits: int) -> None:
    """K that fills its blocks and K that does not, one block and odd counts of them, scales of either rank."""
    r, nodes = np.random.default_rng(bits), Nodes()
    for k, n, block, shape in (
        (32, 8, 16, (3, 32)),
        (50, 3, 16, (2, 3, 50)),
        (100, 5, 64, (1, 100)),
        (16, 1, 16, (16,)),
    ):
        a = r.standard_normal(shape).astype(np.float32)
        for flat in (False, True):
            b, scales, zeros = map(Fixed, weights(r, k, n, block, bits, flat))
            bias = Fixed(r.standard_normal(n).astype(np.float32)) if n % 2 else None
            given: tuple[Fixed | None, ...] = (None, zeros)
            if bits == 4:
                given += (Fixed(r.uniform(0, 15, (n, -(-k // block))).astype(np.float32)),)
            for zero in given:
                nodes.add("MatMulNBits", [a, b, scales, zero, None, bias], K=k, N=n, bits=bits, block_size=block)
    nodes.compare()


def test_rows_of_blocks_by_g_idx() -> None:
    """onnxruntime's kernel takes packed zero points for 8 where there is a g_idx; float ones it reads."""
    r, nodes, k, n, block = np.random.default_rng(3), Nodes(), 50, 5, 16
    b, scales, zeros = map(Fixed, weights(r, k, n, block, 4))
    floats = Fixed(r.uniform(0, 15, (n, 4)).astype(np.float32))
    for groups in (np.arange(k) // block, r.permutation(np.arange(k) // block)):
        for zero in (None, zeros, floats):
            operands = [r.standard_normal((2, k)).astype(np.float32), b, scales, zero, Fixed(groups.astype(np.int32))]
            nodes.add("MatMulNBits", operands, K=k, N=n, bits=4, block_size=block)
    nodes.compare()


def test_half_floats() -> None:
    r, nodes = np.random.default_rng(4), Nodes()
    half = lambda x: x.astype(np.float16)
    b, scales, zeros = weights(r, 50, 6, 32, 4)
    operands = [half(r.standard_normal((2, 3, 50))), Fixed(b), Fixed(half(scales)), Fixed(zeros), None]
    nodes.add("MatMulNBits", [*operands, Fixed(half(r.standard_normal(6)))], K=50, N=6, bits=4, block_size=32)
    nodes.compare(2e-3)


def test_accuracy_level_is_no_demand_to_round() -> None:
    """Level 4 lets onnxruntime round activations to 8 bits; the check compares with its float32."""
    r, nodes = np.random.default_rng(5), Nodes()
    b, scales, zeros = map(Fixed, weights(r, 64, 6, 32, 4))
    a = r.standard_normal((3, 64)).astype(np.float32)
    nodes.add("MatMulNBits", [a, b, scales, zeros], K=64, N=6, bits=4, block_size=32, accuracy_level=4)
    model = nodes.model()
    before = model.SerializeToString()
    assert tw.check(model, nodes.feeds, config="tiny").ok
    assert model.SerializeToString() == before
    with pytest.raises(AssertionError):
        nodes.compare()


@pytest.mark.medium
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gather_of_packed_bytes(bits: int) -> None:
    r, nodes = np.random.default_rng(bits), Nodes()
    for rows, width, block in ((10, 32, 16), (5, 48, 32)):
        scales = r.uniform(0.01, 0.05, (rows, -(-width // block))).astype(np.float32)
        data = Fixed(r.integers(0, 256, (rows, width * bits // 8), np.uint8))
        zeros = Fixed(r.integers(0, 256, (rows, -(-scales.shape[1] * bits // 8)), np.uint8))
        for indices in (np.array([[0, 3, -1]]), np.array([1, rows, -rows - 1], np.int32), np.array(2)):
            for zero, kind in ((None, np.float32), (zeros, np.float16)):
                operands = [data, indices, Fixed(scales.astype(kind)), zero]
                nodes.add("GatherBlockQuantized", operands, bits=bits, block_size=block, quantize_axis=1, gather_axis=0)
    nodes.compare(1e-6)


@pytest.mark.medium
def test_gather_of_small_integers() -> None:
    """Any two axes, also the quantised one behind the one that is gathered."""
    r, nodes = np.random.default_rng(6), Nodes()
    for kind, low in ((ml_dtypes.uint4, 0), (ml_dtypes.int4, -8)):
        for taken, axis, shape in ((0, 2, (4, 3, 32)), (2, 1, (4, 40, 5)), (-1, 0, (36, 5)), (2, 0, (33, 4, 6))):
            wide = tuple(-(-d // 16) if k == axis else d for k, d in enumerate(shape))
            zeros = Fixed(r.integers(low, low + 16, wide).astype(kind)) if taken else None
            scales = Fixed(r.uniform(0.01, 0.05, wide).astype(np.float32))
            operands = [
                Fixed(r.integers(low, low + 16, shape).astype(kind)),
                np.array([[1, 0], [2, -1]]),
                scales,
                zeros,
            ]
            nodes.add("GatherBlockQuantized", operands, block_size=16, quantize_axis=axis, gather_axis=taken)
    nodes.compare(1e-6)


def test_refusals() -> None:
    r = np.random.default_rng(7)
    a = r.standard_normal((3, 32)).astype(np.float32)
    b, scales, _ = map(Fixed, weights(r, 32, 4, 16, 4))
    fits = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
    for attrs, words in (
        ({"bits": 3}, "bits=3 is not supported; accepted: 2, 4, 8"),
        ({"block_size": 24}, "block_size=24 is not supported; powers of two from 16 are"),
        ({"K": 48}, "'n0_0' has shape [3, 32], and K=48"),
        ({"N": 5}, "B 'n0_1' has shape [4, 2, 8]"),
        ({"weight_prepacked": 1}, "weight_prepacked=1 is not supported"),
    ):
        assert words in refusal("MatMulNBits", [a, b, scales], **{**fits, **attrs})
    groups = Fixed(np.zeros(32, np.int32))
    eight, *_ = map(Fixed, weights(r, 32, 4, 16, 8))
    assert "g_idx with bits=8" in refusal("MatMulNBits", [a, eight, scales, None, groups], **{**fits, "bits": 8})
    far = Fixed(np.full(32, 2, np.int32))
    assert "outside of the 2 blocks" in refusal("MatMulNBits", [a, b, scales, None, far], **fits)
    table = Fixed(np.zeros((4, 16), np.uint8))
    text = refusal(
        "GatherBlockQuantized", [table, np.array([1]), scales], block_size=16, quantize_axis=0, gather_axis=1
    )
    assert "gather_axis=1 and quantize_axis=0 is not supported" in text


def test_constants_stay_in_blocks() -> None:
    """Weights are imported as uint4 with a scale a block, not as floats."""
    r, nodes = np.random.default_rng(8), Nodes()
    b, scales, zeros = map(Fixed, weights(r, 40, 4, 16, 4))
    nodes.add("MatMulNBits", [np.zeros((1, 40), np.float32), b, scales, zeros], K=40, N=4, bits=4, block_size=16)
    graph = import_onnx(nodes.model())
    node = next(node for node in graph if node.op == "DequantizeLinear")
    assert graph.tensor(node.inputs[0]).shape == (40, 4) and graph.tensor(node.inputs[0]).dtype == ml_dtypes.uint4
    assert (node.attrs["block_size"], node.attrs["axis"], graph.tensor(node.inputs[1]).shape) == (16, 0, (3, 4))
