"""Attention, QAttention and MultiHeadAttention of com.microsoft against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.common.contrib_models import Fixed, Nodes, refusal

Draw = Callable[..., np.ndarray]
SIZES = [(2, 5, 3, 8, 0), (2, 3, 2, 4, 3)]  # batch, queries, heads, head_size, past


def normal(r: np.random.Generator) -> Draw:
    return lambda *shape: r.standard_normal(shape).astype(np.float32)


def masks(r: np.random.Generator, batch: int, length: int, keys: int) -> dict[str, np.ndarray | None]:
    """Every form, with whole rows hidden among them."""
    drawn = lambda *shape: (r.random(shape) > 0.4).astype(np.int32)
    return {
        "none": None,
        "ends": r.integers(1, keys + 1, batch, np.int32),
        "lengths, starts and ends": r.integers(1, keys + 1, 3 * batch + 2, np.int32),
        "keys": drawn(batch, keys),
        "queries and keys": drawn(batch, length, keys),
        "nothing seen": np.zeros((batch, keys), np.int32),
    }


@pytest.mark.medium
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_attention(size: tuple[int, ...]) -> None:
    batch, length, count, depth, past = size
    r, nodes, width, keys = np.random.default_rng(length), Nodes(), count * depth, length + past
    t = normal(r)
    more = {
        "ends and starts": np.concatenate([np.full(batch, keys), r.integers(0, keys, batch)]).astype(np.int32),
        "one column": np.ones((batch, 1), np.int32),
    }
    for unidirectional in (0, 1):
        for label, mask in {**masks(r, batch, length, keys), **more}.items():
            cache = t(2, batch, count, past, depth) if past else None
            biases: tuple[Any, ...] = (None,) if past else (None, t(batch, count, length, keys), t(1, 1, length, keys))
            for bias in biases[: 3 if label in ("none", "keys") else 1]:
                operands = [t(batch, length, 12), Fixed(t(12, 3 * width)), Fixed(t(3 * width)), mask, cache, bias]
                attrs = {"num_heads": count, "unidirectional": unidirectional}
                nodes.add("Attention", operands, (0, 1), label, **attrs)
    if not past:
        sizes = [width, width, 2 * count]
        operands = [
            t(batch, length, 12),
            Fixed(t(12, sum(sizes))),
            Fixed(t(sum(sizes))),
            masks(r, batch, length, keys)["keys"],
        ]
        nodes.add("Attention", operands, num_heads=count, qkv_hidden_sizes=sizes, scale=0.3, mask_filter_value=-5.0)
    nodes.compare(5e-5)


@pytest.mark.medium
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_multi_head_attention(size: tuple[int, ...]) -> None:
    batch, length, count, depth, past = size
    r, nodes, width = np.random.default_rng(length + 10), Nodes(), count * depth
    t = normal(r)
    new = length if past else length + 2  # keys of another sequence
    keys = new + past
    for unidirectional in (0, 1):
        for label, mask in masks(r, batch, length, keys).items():
            cache = [t(batch, count, past, depth), t(batch, count, past, depth)] if past else [None, None]
            for bias in (None, t(1, count, length, keys), t(batch, 1, length, keys))[
                : 3 if label in ("none", "keys") else 1
            ]:
                added = None if label == "ends" else t(3 * width)
                operands = [
                    t(batch, length, width),
                    t(batch, new, width),
                    t(batch, new, width),
                    added,
                    mask,
                    bias,
                    *cache,
                ]
                outputs = (0, 1, 2) if label != "keys" else (0, 1, 2, 3)
                nodes.add(
                    "MultiHeadAttention", operands, outputs, label, num_heads=count, unidirectional=unidirectional
                )
    heads = [t(batch, count, 6, depth), t(batch, count, 6, depth)]
    nodes.add("MultiHeadAttention", [t(batch, length, width), *heads], num_heads=count)
    other = [t(batch, length, width), t(batch, 6, width), t(batch, 6, 2 * count), t(2 * width + 2 * count)]
    nodes.add("MultiHeadAttention", other, num_heads=count, scale=0.25)
    nodes.compare(5e-5)


@pytest.mark.medium
def test_half_floats() -> None:
    t, nodes = normal(np.random.default_rng(4)), Nodes()
    nodes.add("MultiHeadAttention", [t(2, 5, 16).astype(np.float16) for _ in range(3)], num_heads=2)
    nodes.compare(2e-3)


@pytest.mark.medium
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_q_attention(kind: type) -> None:
    r, nodes = np.random.default_rng(5), Nodes()
    t = normal(r)
    for batch, length, past, columns in ((1, 5, 0, False), (2, 3, 4, True)):
        w = r.integers(0, 120, (12, 48)).astype(kind)
        scale, zero = ((r.uniform(0.001, 0.01, 48), np.full(48, 7)) if columns else (0.01, 7))  # fmt: skip
        operands = [r.integers(0, 256, (batch, length, 12), np.uint8), Fixed(w), Fixed(t(48)), Fixed(np.float32(0.02)),
                    Fixed(np.asarray(scale, np.float32)), np.full(batch, 3, np.int32), Fixed(np.uint8(120)),
                    Fixed(np.asarray(zero, kind)), t(2, batch, 2, past, 8) if past else None]  # fmt: skip
        nodes.add("QAttention", operands, (0, 1) if past else (0,), num_heads=2, unidirectional=batch - 1)
    nodes.compare(1e-4)


def test_refusals() -> None:
    t = normal(np.random.default_rng(6))
    x, w, b = t(2, 3, 8), Fixed(t(8, 24)), Fixed(t(24))
    assert "do_rotary=1 is not supported" in refusal("Attention", [x, w, b], num_heads=2, do_rotary=1)
    text = refusal("Attention", [x, w, b, np.ones((2, 1, 3, 3), np.int32)], num_heads=2)
    assert "a mask of shape [2, 1, 3, 3] is not supported; with 2 sequences of 3 queries and 3 keys, [2], [4]" in text
    assert "[16, 8, 0] channels" in refusal("Attention", [x, w, b], num_heads=2, qkv_hidden_sizes=[16, 8, 0])
    assert "past_present_share_buffer=1" in refusal("Attention", [x, w, b], num_heads=2, past_present_share_buffer=1)
    text = refusal("MultiHeadAttention", [t(2, 3, 2, 3, 8)], num_heads=2)
    assert "query, key and value of [5, 0, 0] dimensions are not supported" in text and "no packed" in text
    text = refusal("MultiHeadAttention", [x, x, x, None, np.ones((2, 1), np.int32)], num_heads=2)
    assert "a mask of shape [2, 1] is not supported" in text
    assert "past_key and past_value belong together" in refusal(
        "MultiHeadAttention", [x, x, x, None, None, None, t(2, 2, 4, 4)], num_heads=2
    )
    assert "cache_indirection" in refusal(
        "MultiHeadAttention", [x, x, x, *[None] * 6, np.zeros((2, 1, 4), np.int32)], num_heads=2
    )
