"""Views: the addresses of a tensor's vectors equal numpy's strides."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tilewright.compiler.npu.views import View, broadcast_ok, channel_axis, dense_view, plane_shape
from tilewright.isa.program import ARENA_REGION, Layout

FIRST, LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST


def vectors(view: View, buffer: np.ndarray) -> np.ndarray:
    """Returns the vectors of a view, [N, CB, H, W, block], out of its buffer, which has an element for each byte."""
    strides = (view.sn, view.sc, view.sh, view.block, 1)
    return np.lib.stride_tricks.as_strided(
        buffer[view.offset :],
        (view.n, view.cb, view.h, view.w, view.block),
        tuple(stride * buffer.itemsize for stride in strides),
    )


@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_a_part_is_found_where_it_begins(seed: int) -> None:
    """`View.within` finds any box of a tensor, even one with axes of a single element."""
    random = Random(seed)
    sizes = [random.choice((1, 2, 3, 5)) for _ in range(4)]
    n, cb, h, w = sizes
    whole = dense_view("x", "x", ARENA_REGION, (n, cb * 4, h, w), 4)
    buffer = np.arange(whole.nbytes)
    first = [random.randrange(size) for size in sizes]
    own = [random.randint(1, size - at) for size, at in zip(sizes, first, strict=True)]
    offset = whole.address(*first)
    part = replace(whole, tensor="part", offset=offset, n=own[0], c=4 * own[1], h=own[2], w=own[3])
    box = tuple(slice(at, at + size) for at, size in zip(first, own, strict=True))
    np.testing.assert_array_equal(vectors(part, buffer), vectors(whole, buffer)[box])
    assert part.within(whole) == tuple(first)
    assert whole.within(part) == (tuple(first) if part.nbytes == whole.nbytes else None)


def test_what_is_no_part() -> None:
    whole = dense_view("x", "x", ARENA_REGION, (2, 8, 3, 5), 4)
    assert replace(whole, buffer="y").within(whole) is None
    assert replace(whole, sh=2 * whole.sh, h=1).within(whole) is None  # every second row
    assert replace(whole, offset=2, n=1, c=4, h=1, w=1).within(whole) is None  # begins in the middle of a vector
    assert replace(whole, offset=whole.sc).within(whole) is None  # goes on behind the last block
    assert replace(whole, offset=whole.block, n=1, c=4, h=1, w=5).within(whole) is None  # goes on in the next row


@pytest.mark.parametrize(
    ("shape", "layout", "planes"),
    [
        ((2, 3, 4, 5), FIRST, (2, 3, 4, 5)),
        ((2, 3, 4), FIRST, (2, 3, 1, 4)),
        ((2, 3), FIRST, (2, 3, 1, 1)),
        ((3,), FIRST, None),
        ((2, 3, 4, 5), LAST, (6, 5, 1, 4)),
        ((3,), LAST, (1, 3, 1, 1)),
        ((), LAST, None),
        ((2, 0), LAST, None),
    ],
)
def test_planes_of_a_shape(shape: tuple[int, ...], layout: Layout, planes: tuple[int, ...] | None) -> None:
    """The planes have all elements, and the channel axis has as many as the view has channels."""
    assert plane_shape(shape, layout) == planes
    if planes is not None:
        assert np.prod(shape) == np.prod(planes) and shape[channel_axis(len(shape), layout)] == planes[1]


def test_operands_follow_channels() -> None:
    assert broadcast_ok((1, 4, 1, 1), (2, 4, 5, 6), FIRST, const=False)
    assert not broadcast_ok((1, 1, 5, 6), (2, 4, 5, 6), FIRST, const=False)
    assert broadcast_ok((1, 1, 5, 6), (2, 4, 5, 6), FIRST, const=True)
    assert broadcast_ok((4,), (2, 3, 4), LAST, const=False) and broadcast_ok((2, 1, 4), (2, 3, 4), LAST, const=False)
    assert not broadcast_ok((2, 1, 3, 4), (2, 5, 3, 4), LAST, const=False)  # the operand's images are not contiguous


def test_values_of_two_bytes() -> None:
    """The blocks of the high bytes come first, and `fills` gives the bytes of a value as the machine stores them."""
    view = dense_view("x", "x", ARENA_REGION, (1, 6, 2, 3), 4, nbytes=2)
    assert (view.cb, view.first_bytes.cb, view.nbytes) == (4, 2, 2 * 2 * 2 * 3 * 4)
    for value in (-32768, -129, -1, 0, 127, 128, 32767):
        high, low = view.fills(value)
        assert 256 * high + low + 128 == value and -128 <= low < 128
    assert dense_view("x", "x", ARENA_REGION, (1, 6, 2, 3), 4).fills(7) == (7,)
