"""Norms of com.microsoft that add first, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.common.contrib_models import Fixed, Nodes, refusal


@pytest.mark.medium
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_skip_norms(kind: type) -> None:
    """Skips of lower rank, with and without bias, beta and the sum as output."""
    r, nodes = np.random.default_rng(1), Nodes()
    t = lambda *shape: r.standard_normal(shape).astype(kind)
    for skip in ((2, 3, 16), (1, 3, 16), (3, 16)):
        for bias in (None, Fixed(t(16))):
            for outputs in ((0,), (0, 3)):
                operands: list[Any] = [t(2, 3, 16), t(*skip), Fixed(t(16))]
                nodes.add("SkipLayerNormalization", [*operands, Fixed(t(16)), bias], outputs, epsilon=1e-5)
                nodes.add("SkipSimplifiedLayerNormalization", [*operands, bias], outputs, epsilon=1e-5)
    nodes.add("SkipLayerNormalization", [t(2, 3, 16), t(2, 3, 16), Fixed(t(16))])
    nodes.add("SkipSimplifiedLayerNormalization", [t(3, 16), t(3, 16), Fixed(t(16))])
    nodes.compare(2e-5 if kind is np.float32 else 4e-3)


@pytest.mark.medium
def test_embeddings() -> None:
    r, nodes = np.random.default_rng(2), Nodes()
    t = lambda *shape: Fixed(r.standard_normal(shape).astype(np.float32))
    u = lambda *shape: Fixed(r.integers(0, 256, shape, np.uint8))
    ids, kinds = r.integers(0, 9, (2, 3), np.int32), r.integers(0, 2, (2, 3), np.int32)
    for segments in (kinds, None):
        for mask in (r.integers(0, 2, (2, 3), np.int32), None):
            for positions in (None, r.integers(0, 6, (2, 3), np.int32), r.integers(0, 6, (1, 3), np.int32)):
                tables = [t(9, 16), t(7, 16), t(2, 16) if segments is not None else None, t(16), t(16)]
                nodes.add("EmbedLayerNormalization", [ids, segments, *tables, mask, positions], (0, 1, 2))
            tables = [u(9, 16), u(7, 16), u(2, 16) if segments is not None else None, u(16), u(16)]
            scales = [Fixed(np.float32(r.uniform(0.01, 0.1))) if x else None for x in tables]
            zeros = [Fixed(np.uint8(r.integers(100, 150))) if x else None for x in tables]
            nodes.add("QEmbedLayerNormalization", [ids, segments, *tables, mask, *scales, *zeros], (0, 1))
    nodes.compare()


def test_statistics_are_refused() -> None:
    x = np.zeros((1, 2, 8), np.float32)
    nodes = [x, x, Fixed(np.ones(8, np.float32))]
    for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        assert "the mean and inv_std outputs are not supported" in refusal(op, nodes, outputs=(0, 1))
