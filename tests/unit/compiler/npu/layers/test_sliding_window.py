"""Sliding windows: the inputs that a part of an output needs equal a walk over all taps."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_span_holds_every_tap(seed: int) -> None:
    rng = random.Random(seed)
    kernel, pad, stride, dilation = (rng.randint(1, 5), rng.randint(0, 4), rng.randint(1, 3), rng.randint(1, 3))
    window = SlidingWindow((kernel, 1), (pad, 0), (stride, 1), (dilation, 1))
    first = rng.randint(0, 6)
    end = first + rng.randint(1, 6)
    taps = [q * stride - pad + k * dilation for q in range(first, end) for k in range(kernel)]
    assert window.span(first, end, 0) == (min(taps), max(taps) + 1)
    assert window.span(first, end, 1) == (first, end)


def test_box_keeps_image_and_blocks() -> None:
    window = SlidingWindow((3, 3), (1, 1), (2, 2))
    assert window.box(Box(1, 2, 3, 0, 4, 1, 2)) == Box(1, 2, 3, -1, 8, 1, 4)
    assert window.extent(4, 1) == (9, 3)


def test_border() -> None:
    assert SlidingWindow((3, 3), (1, 1)).border((8, 8), (8, 8)) == Border(1, 1, 1, 1)
    assert SlidingWindow((3, 3), (1, 1), (2, 2)).border((4, 4), (8, 8)) == Border(1, 0, 1, 0)
    assert SlidingWindow((1, 1), (0, 0), (2, 2)).border((4, 4), (8, 8)) == Border()
    assert Border(1, 0, 2, 0).union(Border(0, 3, 1, 1)) == Border(1, 3, 2, 1)
