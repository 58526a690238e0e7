"""`tilewright.simulator.bound`: cycles worked out by hand."""

from __future__ import annotations

from tilewright.isa.config import PRESETS
from tilewright.isa.program import Layer
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.bound import bound_cycles, memory_cycles, shares

BASE = PRESETS["base"]  # 8 bytes a beat


def layer(steps: int = 0, reads: int = 0, writes: int = 0, after_all: bool = False, where: str = "npu") -> Layer:
    return Layer(
        "x", "QConv", where, minimum_bytes=reads + writes, minimum_writes=writes, minimum_steps=steps,
        after_all=after_all,
    )  # fmt: skip


def test_reads_and_writes_have_channels_of_their_own() -> None:
    assert memory_cycles([layer(reads=801, writes=800)], BASE) == 101
    assert memory_cycles([layer(reads=80), layer(writes=801)], BASE) == 101
    assert memory_cycles([layer(reads=800, writes=400)], BASE, held=480, kept=0) == 50


def test_beats_may_be_more_than_a_cycle_apart() -> None:
    slow = MemoryTiming(read_interval=2.5, write_interval=3)
    assert memory_cycles([layer(reads=8000)], BASE, slow) == 2498  # the 1,000th beat, 999 x 2.5 behind the first
    assert memory_cycles([layer(reads=8000, writes=7993)], BASE, slow) == 2998
    assert memory_cycles([layer(reads=8)], BASE, slow) == 1 and memory_cycles([layer()], BASE, slow) == 0
    assert bound_cycles([layer(steps=1000), layer(reads=8000)], BASE, slow) == 2498


def test_layers_overlap_unless_one_must_wait() -> None:
    compute, memory = layer(steps=1000), layer(reads=8000)
    assert bound_cycles([compute, memory], BASE) == 1000
    # Behind all the others only what the scratchpads cannot hold is left to read.
    late = layer(steps=10, reads=8 * 5000 + BASE.scratchpad_bytes, after_all=True)
    assert bound_cycles([compute, late], BASE) == max(1000 + 5000, 5000 + BASE.scratchpad_bytes // 8)
    small = layer(steps=10, reads=8 * 500, after_all=True)
    assert bound_cycles([compute, small], BASE) == 1000 + 10


def test_what_is_made_before_a_cut_may_be_stored_behind_it() -> None:
    kept = BASE.act_rows * BASE.block_in + BASE.acc_rows * BASE.block_out
    first = layer(steps=100, writes=kept + 8 * 300)
    assert bound_cycles([first, layer(steps=50, after_all=True)], BASE) == max(300 + 50, kept // 8 + 300)


def test_parts_add_up_and_hold_all_steps() -> None:
    layers = [layer(100, 80), layer(20, 80_000), layer(0, 0, 800), layer(300, 8000)]
    found = shares(layers, BASE)
    assert sum(found) == bound_cycles(layers, BASE) == -(-88_080 // 8)
    assert all(layer.minimum_steps <= part for layer, part in zip(layers, found))
    assert found[0] == 100 and found[2] <= 100  # no more than its own bytes take


def test_nothing_on_the_npu() -> None:
    assert bound_cycles([], BASE) == bound_cycles([layer(5, 5, where="cpu")], BASE) == 0
