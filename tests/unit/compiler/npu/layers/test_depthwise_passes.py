"""Strips of the window mode: the formula for the cheapest against counting the pushes of each."""

from __future__ import annotations

from random import Random

from compiler.npu.layers.depthwise_passes import _MAX_START, TapGroup, _axis_options, _best_strip


def counted(slots: int, r: TapGroup, c: TapGroup, out: tuple[int, int]) -> tuple[int, int] | None:
    """The first strip of the fewest pushes, strip by strip."""
    found = []
    for strip in range(1, out[0] + 1):
        if c.reach * r.pushes(strip) + r.reach < slots and max(r.reach, c.reach) <= _MAX_START:
            heights = [min(strip, out[0] - first) for first in range(0, out[0], strip)]
            found.append((sum(r.pushes(h) * c.pushes(out[1]) + 2 for h in heights), strip))
    pushes, strip = min(found, default=(0, 0))
    return (strip, pushes) if found else None


def test_cheapest_strips() -> None:
    random, misfits = Random(1), 0
    for _ in range(1000):
        kernels = [(random.randint(1, 9), random.randint(1, 4), random.randint(1, 3)) for _ in range(2)]
        rows, columns = (random.choice(random.choice([*_axis_options(*kernel)])) for kernel in kernels)
        slots, out = random.choice((4, 8, 16, 64)), (random.randint(1, 40), random.randint(1, 40))
        want = counted(slots, rows, columns, out)
        assert _best_strip(slots, rows, columns, out) == want, (slots, rows, columns, out)
        misfits += want is None
    assert 50 < misfits < 500
