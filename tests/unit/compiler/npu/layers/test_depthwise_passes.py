"""Strips of the window mode: the formula for the cheapest strip equals a count of the pushes of every strip."""

from __future__ import annotations

from random import Random

import pytest

from tilewright.compiler.npu.layers.depthwise_passes import (
    _MAX_START,
    Slots,
    TapGroup,
    _axis_options,
    _best_strip,
    plan_passes,
)
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow


def ages(slots: Slots, delay: int) -> list[int]:
    """Returns the age in pushes of every window slot, by the definition of DEPTHWISE."""
    return [i + delay * (i // slots.segment) for i in range(slots.count)]


def fits(slots: Slots, r: TapGroup, c: TapGroup, height: int) -> bool:
    """Returns True if the window has every tap without delay, or some delay puts a segment on every column of taps."""
    column = {i * r.lag for i in range(r.taps)}
    taps = {j * c.lag * height + row for j in range(c.taps) for row in column}
    if max(taps) < slots.count:
        return True
    of_segments = {
        delay: {(i // slots.segment, age) for i, age in enumerate(ages(slots, delay))}
        for delay in range(1, slots.longest + 1)
    }
    wanted = {(j, j * c.lag * height + row) for j in range(c.taps) for row in column}
    return any(wanted <= places for places in of_segments.values())


def counted(slots: Slots, r: TapGroup, c: TapGroup, out: tuple[int, int]) -> tuple[int, int] | None:
    """Returns the first strip with the fewest pushes, and these, counted strip by strip; None if no strip fits."""
    found = []
    for strip in range(1, out[0] + 1):
        if fits(slots, r, c, r.pushes(strip)) and max(r.reach, c.reach) <= _MAX_START:
            heights = [min(strip, out[0] - first) for first in range(0, out[0], strip)]
            found.append((sum(r.pushes(h) * c.pushes(out[1]) + 2 for h in heights), strip))
    pushes, strip = min(found, default=(0, 0))
    return (strip, pushes) if found else None


@pytest.mark.medium
def test_cheapest_strips() -> None:
    random, misfits, apart = Random(1), 0, 0
    for _ in range(1000):
        kernels = [(random.randint(1, 9), random.randint(1, 4), random.randint(1, 3)) for _ in range(2)]
        rows, columns = (random.choice(random.choice([*_axis_options(*kernel)])) for kernel in kernels)
        count, longest = random.choice((4, 8, 16, 64)), random.choice((0, 1, 2, 7, 16))
        slots = Slots(count, 4 if count < 16 else 5, longest if count > 4 else 0)
        out = random.randint(1, 40), random.randint(1, 40)
        want = counted(slots, rows, columns, out)
        assert _best_strip(slots, rows, columns, out) == want, (slots, rows, columns, out)
        misfits += want is None
        if want is None:
            continue
        height = rows.pushes(want[0])
        delay = slots.delay(rows, columns, height)
        apart += delay > 0
        for i in range(rows.taps):
            for j in range(columns.taps):
                age = ages(slots, delay)[slots.slot(rows, columns, height, i, j)]
                assert age == j * columns.lag * height + i * rows.lag
    assert 50 < misfits < 500 and apart > 30


def test_strips_in_pairs_are_counted_by_their_steps() -> None:
    """A push without output takes half a step: an output of stride 2 about two in place of four."""
    slots = Slots(16, 5, 16, 4)
    taps = TapGroup(0, 1, 3, 1, 1, 2)
    size, steps = _best_strip(slots, taps, taps, (28, 28), True) or (0, 0)
    lines = [min(size, 28 - first) for first in range(0, 28, size)]
    counted = 0
    for outputs in lines:
        pushes = taps.pushes(outputs)
        with_output = [push >= 2 and push % 2 == 0 for push in range(pushes)]
        at = step = 0
        while at < pushes:
            at, step = at + (1 if with_output[at] or at + 1 == pushes else 2), step + 1
        counted += 28 * step + (taps.pushes(28) - 28) * -(-pushes // 2) + 2
    assert steps == counted < 2.7 * 28 * 28
    alone = _best_strip(slots, taps, taps, (28, 28))
    assert alone is not None and alone[1] > 4 * 28 * 28


def test_passes_in_pairs_lie_along_rows_where_columns_meet_in_a_bank() -> None:
    """Vectors of a column are as many rows of ACT apart as the band has columns: 16 here, of 4 banks."""
    window = SlidingWindow((3, 3), (1, 1), (1, 1))
    (one,), steps = plan_passes(Slots(16, 5, 16, 4), window, (14, 14))
    _, before = plan_passes(Slots(16, 5, 16), window, (14, 14))
    assert one.axis == 1 and steps == 14 * 15 + 2 * 8 + 2 < before
