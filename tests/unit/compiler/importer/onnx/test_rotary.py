"""RotaryEmbedding of com.microsoft against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.common.contrib_models import Fixed, Nodes, refusal


@pytest.mark.medium
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int, kind: type) -> None:
    """Both ranks, one first position or one of each token, whole heads and parts of them."""
    r, nodes = np.random.default_rng(interleaved), Nodes()
    t = lambda *shape: r.standard_normal(shape).astype(kind)
    for batch, length, count, depth in ((2, 3, 2, 8),) if kind is np.float16 else ((1, 5, 2, 16), (2, 1, 1, 32)):
        for positions in (np.array([2]), r.integers(0, 9, (batch, length))):
            for x in (t(batch, length, count * depth), t(batch, count, length, depth)):
                for part, attrs in (
                    (depth, {}),
                    (depth // 2, {"rotary_embedding_dim": depth // 2, "num_heads": count}),
                ):
                    caches = [Fixed(t(12, part // 2)), Fixed(t(12, part // 2))]
                    nodes.add("RotaryEmbedding", [x, positions, *caches], interleaved=interleaved, scale=2.0, **attrs)
    nodes.compare(2e-5 if kind is np.float32 else 2e-3)


def test_refusals() -> None:
    x, cos = np.zeros((1, 3, 16), np.float32), Fixed(np.zeros((8, 4), np.float32))
    operands = [x, np.array([0]), cos, cos]
    assert "is_packed_batching=1 is not supported; accepted: 0" in refusal(
        "RotaryEmbedding", operands, is_packed_batching=1
    )
    other = Fixed(np.zeros((8, 2), np.float32))
    text = refusal("RotaryEmbedding", [x, np.array([0]), cos, other])
    assert "cos_cache [8, 4] and sin_cache [8, 2] must be alike" in text
