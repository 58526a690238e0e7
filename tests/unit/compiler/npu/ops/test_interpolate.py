"""Interpolation along an axis as convolutions of the axis with its ends repeated once."""

from tilewright.compiler.graph.ops.interpolate import Places
from tilewright.compiler.npu.ops.interpolate import Upsampling


def places(pairs: list[tuple[int, int]], shares: tuple[int, ...], one: int) -> Places:
    """Returns the places between pairs of elements."""
    first, second = zip(*pairs, strict=True)
    return Places(first=first, second=second, shares=shares, one=one)


def test_ends_are_repeated_once() -> None:
    """Twice as many of three, in between: weights 1/4 and 3/4."""
    twice = places([(0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (2, 2)], (0, 1, 3, 1, 3, 0), 4)
    assert Upsampling.of(twice, 3) == Upsampling(2, ((1, 3), (3, 1)), (0, 1), 4)


def test_no_tap_lies_behind_the_repeated_ends() -> None:
    """A tap there is refused even where it would read the last element once more, as the result wants."""
    last, first = (places([(n, n), (n, n)], (0, 0), 2) for n in (1, 0))
    assert Upsampling(1, ((2,),), (2,), 2)._matches(last, 2)
    assert not Upsampling(1, ((0, 2),), (2,), 2)._matches(last, 2)
    assert not Upsampling(1, ((2, 0),), (-1,), 2)._matches(first, 2)
