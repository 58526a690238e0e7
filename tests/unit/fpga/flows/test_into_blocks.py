"""Memories that go into block RAMs that would be free."""

from __future__ import annotations

from tilewright.fpga.flows.into_blocks import choose, sites
from tilewright.fpga.flows.into_luts import Memory

FULL = Memory("full", 16, 36, 0, clocked=True)
WIDE = Memory("wide", 16, 37, 0, clocked=True)  # two blocks, one of them for a bit
NARROW = Memory("narrow", 16, 4, 0, clocked=True)
DEEP = Memory("deep", 32, 20, 0, clocked=True)


def test_sites_of_a_distributed_ram() -> None:
    assert sites(FULL) == 9 * 8 + 36
    assert sites(WIDE) == 10 * 8 + 37
    assert sites(DEEP) == 2 * 5 * 8 + 20


def test_those_that_save_most_for_a_block_are_first() -> None:
    assert choose([NARROW, WIDE, DEEP, FULL], 1) == (FULL,)
    assert choose([NARROW, WIDE, DEEP, FULL], 2) == (FULL, DEEP)
    assert choose([NARROW, WIDE, DEEP, FULL], 3) == (FULL, DEEP, NARROW)  # no room for both blocks of `wide`
    assert choose([NARROW, WIDE, DEEP, FULL], 4) == (FULL, DEEP, WIDE)


def test_a_memory_must_fit_and_have_a_clock() -> None:
    at_once, in_blocks = Memory("at_once", 16, 36, 0), Memory("in_blocks", 512, 36, 1, clocked=True)
    assert choose([at_once, in_blocks, Memory("deep", 513, 36, 0, clocked=True)], 9) == ()
