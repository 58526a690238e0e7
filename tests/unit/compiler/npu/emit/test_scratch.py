"""Allocation of scratchpad rows: rings that find their constants again, and a heap of activations."""

from __future__ import annotations

from random import Random

import pytest

from tilewright.compiler.npu.emit.scratch import Heap, Ring, ScratchpadFull


def test_ring_hands_out_in_rotation() -> None:
    ring = Ring(10)
    assert [ring.take(4), ring.take(4), ring.take(4)] == [0, 4, 0]


def test_ring_aligns() -> None:
    ring = Ring(16, align=4)
    assert [ring.take(3), ring.take(3), ring.take(4), ring.take(4), ring.take(1)] == [0, 4, 8, 12, 0]


def test_ring_finds_until_the_rows_are_used_again() -> None:
    ring = Ring(10)
    ring.take(4, "a")
    ring.take(4, "b")
    assert (ring.find("a"), ring.find("b"), ring.find("c")) == (0, 4, None)
    ring.take(3, "c")  # does not fit behind b: over the start of a
    assert (ring.find("a"), ring.find("b"), ring.find("c")) == (None, 4, 0)
    ring.invalidate()
    assert ring.find("b") is None


def test_ring_holds_what_nothing_was_put_over() -> None:
    random, ring = Random(1), Ring(50, align=2)
    held: dict[int, range] = {}
    for key in range(500):
        named, count = random.random() < 0.8, random.randint(1, 12)
        start = ring.take(count, key if named else None)
        held = {k: rows for k, rows in held.items() if rows.stop <= start or start + count <= rows.start}
        if named:
            held[key] = range(start, start + count)
        assert {k: ring.find(k) for k in range(key + 1) if ring.find(k) is not None} == {
            k: rows.start for k, rows in held.items()
        }


def test_ring_takes_no_more_than_it_has() -> None:
    with pytest.raises(ScratchpadFull, match="11 rows of 10"):
        Ring(10).take(11)


def test_heap_rotates_through_the_gaps() -> None:
    heap = Heap(12)
    a, b = heap.take(4), heap.take(4)
    assert (a.start, b.start) == (0, 4)
    a.free()
    assert heap.take(4).start == 8  # goes on, although rows 0..3 are free: they may still be in use
    assert heap.take(4).start == 0


def test_heap_tells_what_is_free() -> None:
    heap = Heap(12, first=100)
    assert heap.take_at(104, 2).start == 104
    assert (heap.free_rows, heap.largest_gap) == (10, 6)
    assert heap.take_low(5).start == 106
    with pytest.raises(ScratchpadFull, match="5 rows of ACT, 5 free"):
        heap.take(5)  # four and one
    with pytest.raises(ScratchpadFull, match=r"rows 103\.\.105 of ACT are in use"):
        heap.take_at(103, 2)
    with pytest.raises(ScratchpadFull, match=r"rows 111\.\.113 of ACT are in use"):
        heap.take_at(111, 2)  # beyond the end


def test_ring_hands_out_no_reserved_rows() -> None:
    ring = Ring(16, align=2)
    assert ring.take(14, "old") == 0
    assert ring.reserve(4) == 12 and ring.find("old") is None
    assert [ring.take(6), ring.take(6), ring.take(4)] == [0, 6, 0]
    with pytest.raises(ScratchpadFull, match="13 rows of 12"):
        ring.take(13)
    with pytest.raises(ScratchpadFull, match="14 rows of 12"):
        ring.reserve(14)
    ring.give_back(4)
    assert ring.take(16) == 0


def test_a_full_heap_has_no_gap() -> None:
    heap = Heap(8)
    rows = heap.take(8)
    assert (heap.free_rows, heap.largest_gap) == (0, 0)
    with pytest.raises(ScratchpadFull):
        heap.take(1)
    rows.free()
    assert heap.largest_gap == 8
