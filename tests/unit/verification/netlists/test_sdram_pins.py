"""The model of an SDRAM at the pins of a netlist: words come back, and each rule of the data sheet is broken once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.verification.netlists.hand_netlists import Hand
from tests.unit.verification.netlists.sdram_player import (
    CHIP,
    HZ,
    NOP,
    PRECHARGE_ALL,
    REFRESH,
    Step,
    active,
    load_mode,
    played,
    player,
    player_cells,
    precharge,
    read,
    write,
)
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.sdram.chip import SdramChip
from verification.netlists import sdram_pins
from verification.netlists.ecp5_cells import numbers_of
from verification.netlists.netlist import NetlistLine
from verification.netlists.sdram_pins import registers_of

#: Cycles of the chip's times at 10 ns: 20 ns, 66 ns, 44 ns.
TWO, SEVEN, FIVE = [NOP], [NOP] * 6, [NOP] * 4
WAIT = [NOP] * 31


def ready(cas: int = 2, words: int = 2) -> list[Step]:
    """Ready for ACTIVE."""
    return [*WAIT, PRECHARGE_ALL, *TWO, REFRESH, *SEVEN, REFRESH, *SEVEN, load_mode(cas, words), NOP]


def fault(steps: Sequence[Step], chip: SdramChip = CHIP, **how: int) -> str:
    line = player(steps, chip, **how)
    line.run(len(steps) + 8)
    return line.sdram_fault


@pytest.mark.parametrize("cas", [2, 3])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_words_come_back(cas: int, words: int) -> None:
    first = [1, 2, 4, 8][:words]
    steps = [*ready(cas, words), active(1, 7), *TWO]
    steps += [write(first[0], 1, 4), *(Step(data=value) for value in first[1:])]
    steps += [NOP, read(1, 4), *[NOP] * 9, PRECHARGE_ALL, *TWO, active(1, 8), *TWO, read(1, 4), *[NOP] * 9]
    line = player(steps)
    found = played(line, len(steps) + 8)
    start = steps.index(read(1, 4)) + cas + 2
    assert line.sdram_fault == ""
    assert found[start : start + words] == first
    assert not any(found[start + words :])
    assert line.sdram_commands == {
        "LOAD MODE": 1, "REFRESH": 2, "PRECHARGE": 2, "ACTIVE": 2, "WRITE": 1, "READ": 2, "BURST TERMINATE": 0,
    }  # fmt: skip


def test_bursts_go_round_and_are_cut() -> None:
    steps = [*ready(2, 4), active(), *TWO, write(1, 0, 2), *(Step(data=value) for value in (2, 4, 8)), NOP]
    cut = [read(0, 0), NOP, read(0, 3), NOP, NOP, Step(0b001), *[NOP] * 8]
    found = played(player([*steps, *cut]), len(steps) + len(cut) + 8)
    place = len(steps) + 4
    assert found[place : place + 8] == [4, 8, 2, 4, 8, 0, 0, 0]


def test_masked_bytes_stay_and_are_not_driven() -> None:
    steps = [*ready(), active(), *TWO, write(5), Step(data=6), write(9, mask=1), Step(data=10), NOP, NOP]
    reads = [read(), *[NOP] * 5, read(), Step(mask=1), *[NOP] * 8]
    found = played(player([*steps, *reads]), len(steps) + len(reads) + 8)
    place = len(steps) + 4
    assert found[place : place + 8] == [5, 10, 0, 0, 0, 0, 5, 0]


def test_random_words_and_a_floating_bus() -> None:
    steps = [*ready(), active(), *TWO, read(), *[NOP] * 20]
    runs = [played(player(steps, seed=seed), len(steps)) for seed in (1, 2, 1)]
    assert runs[0] == runs[2] != runs[1] and len(set(runs[0])) > 8


OPEN = [*ready(), active(), *TWO]
BROKEN = {
    "a command before the time after power-on": [*WAIT[8:], PRECHARGE_ALL],
    "REFRESH or LOAD MODE before PRECHARGE of all banks": [*WAIT, REFRESH],
    "REFRESH or LOAD MODE too soon after PRECHARGE": [*WAIT, PRECHARGE_ALL, REFRESH],
    "REFRESH or LOAD MODE with an open row": [*OPEN, *SEVEN, REFRESH],
    "a command too soon after REFRESH": [*WAIT, PRECHARGE_ALL, *TWO, REFRESH, *SEVEN[1:], REFRESH],
    "a command too soon after LOAD MODE": [*ready()[:-1], active()],
    "a mode that this model does not have": [*ready(1)],
    "ACTIVE before PRECHARGE, REFRESH and LOAD MODE": [
        *WAIT, PRECHARGE_ALL, *TWO, REFRESH, *SEVEN, load_mode(), NOP, active(),
    ],
    "ACTIVE in a bank with an open row": [*OPEN, *SEVEN, active(0, 6)],
    "ACTIVE too soon after PRECHARGE": [*OPEN, *FIVE, precharge(), active()],
    "ACTIVE too soon after ACTIVE of another bank": [*ready(), active(), active(1)],
    "PRECHARGE too soon after ACTIVE": [*OPEN, *FIVE[2:], precharge()],
    "PRECHARGE too soon after a word was written": [*OPEN, *FIVE, write(1), Step(data=2), precharge()],
    "READ or WRITE without an open row": [*OPEN, read(1)],
    "READ or WRITE too soon after ACTIVE": [*ready(), active(), read()],
    "auto precharge": [*OPEN, read(0, 1 << 10)],
    "a byte to write that nobody drives": [*OPEN, Step(0b011)],
    "both sides drive the data bus": [*OPEN, read(), NOP, Step(data=1)],
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rules(rule: str) -> None:
    found = fault(BROKEN[rule])
    assert found.startswith(rule), found


#: As late as they must be, or without what would break them.
KEPT = (
    [*WAIT, PRECHARGE_ALL],
    [*OPEN, *FIVE[1:], precharge(), *TWO, active()],
    [*ready(), active(), NOP, active(1), *TWO, read(), NOP, read(1)],
    [*OPEN, *FIVE[1:], precharge()],
    [*OPEN, *FIVE, write(1), Step(data=2), NOP, precharge()],
    [*OPEN, read(), NOP, NOP, NOP, NOP, Step(data=1)],
    [*OPEN, Step(0b011, mask=1), Step(mask=1)],
)


@pytest.mark.parametrize("steps", KEPT)
def test_rules_that_are_just_kept(steps: list[Step]) -> None:
    assert fault(steps) == ""


@pytest.mark.parametrize(
    "later, rule", [(1, "a pin changes too late"), (7, "a pin changes too soon"), (2, ""), (6, "")]
)
def test_pins_are_still_around_the_clock(later: int, rule: str) -> None:
    assert fault([*ready(), active(), *TWO], later=later)[:24].startswith(rule)


def test_words_come_back_only_at_their_time() -> None:
    """A quarter of a cycle earlier than it should be, the chip's clock makes the FPGA miss them."""
    steps = [*OPEN, write(1), Step(data=2), NOP, read(), *[NOP] * 8]
    good, bad = (played(player(steps, later=later), len(steps) + 8) for later in (4, 2))
    assert good[len(OPEN) + 7 :][:2] == [1, 2] and not any(bad[len(OPEN) + 6 :])


def test_times_that_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*OPEN, *[NOP] * 60, precharge(), *[NOP] * 60]
    assert fault(steps) == ""
    often = replace(CHIP, refresh_period_ms=1e-4 * (1 << CHIP.row_bits))
    assert fault(steps, often).startswith("REFRESH is missing")
    monkeypatch.setattr(sdram_pins, "_ROW_OPEN_MOST", 600)
    assert fault(steps).startswith("PRECHARGE too late after ACTIVE")


def test_a_chip_that_is_slower() -> None:
    steps = [*OPEN, *FIVE[1:], precharge(), *TWO, active()]
    assert fault(steps, replace(CHIP, row=70)) == ""
    assert fault(steps, replace(CHIP, row=71)).startswith("ACTIVE too soon after ACTIVE of the same bank")


def test_a_clock_that_is_too_fast() -> None:
    slow = replace(CHIP, cas=((90_000_000, 2), (133_000_000, 3)))
    lines = {cas: player(ready(cas), slow) for cas in (2, 3)}
    for line in lines.values():
        line.run(80)
    assert lines[2].sdram_fault.startswith("the clock is too fast for the CAS latency") and not lines[3].sdram_fault


def test_a_start_makes_it_new() -> None:
    line = player([*WAIT, REFRESH])
    line.run(60)
    assert "before PRECHARGE of all banks, after 3" in line.sdram_fault
    line.start()
    assert line.sdram_fault == "" and not any(line.sdram_commands.values())


def test_pins_that_are_missing() -> None:
    hand = Hand()
    (clock,) = hand.pll(CLKOP=(8, 0))
    hand.pin_out("led_0__io", hand.toggle(clock))
    with pytest.raises(FpgaError, match="sdram_0__clk__io of the netlist is not a clock"):
        NetlistLine(hand.module, clock_hz=HZ, baud=HZ // 10, sdram=CHIP)


def test_pins_without_registers() -> None:
    numbers = numbers_of(player_cells([]))
    numbers.registers[-1][-1] += 1
    with pytest.raises(FpgaError, match="do not all have registers, on one clock"):
        registers_of(numbers)
