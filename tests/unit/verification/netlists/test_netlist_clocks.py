"""Two clocks of a PLL: when their edges come, and what crosses where they come together."""

from __future__ import annotations

import pytest

from tests.unit.verification.netlists.hand_netlists import Hand
from tilewright.fpga.errors import FpgaError
from verification.netlists.netlist import NetlistLine

HZ = 100_000_000


def expected_levels(divider: int, other: int, phase: int, cycles: int) -> list[tuple[int, int]]:
    """Returns the levels that each clock's register has taken of the other clock's toggling register, after each cycle
    of the first."""
    toggles, taken, levels = [0, 0], [0, 0], []
    for time in range(divider * (cycles - 1) + 1):
        edges = [time % divider == 0, time >= phase and (time - phase) % other == 0]
        before = list(toggles)
        for clock in (0, 1):
            if edges[clock]:
                taken[clock] = before[1 - clock]
                toggles[clock] ^= 1
        if edges[0]:
            levels.append((taken[0], taken[1]))
    return levels


@pytest.mark.parametrize("divider, other, phase", [(3, 2, 0), (3, 2, 1), (5, 7, 3), (4, 6, 1), (2, 6, 4)])
def test_edges_in_order_of_time(divider: int, other: int, phase: int) -> None:
    hand = Hand()
    first, second = hand.pll(CLKOP=(divider, 5), CLKOS=(other, 5 + phase))
    a, b = hand.toggle(first), hand.toggle(second)
    hand.pin_out("led_0__io", hand.register(first, b))
    hand.pin_out("led_1__io", hand.register(second, a))
    line = NetlistLine(hand.module, clock_hz=HZ, baud=HZ // 10)
    wanted = expected_levels(divider, other, phase, 60)
    found = []
    for _ in range(line.cycles, len(wanted)):
        line.run(1)
        found.append((line.level("led_0__io"), line.level("led_1__io")))
    assert found == wanted[len(wanted) - len(found) :] and len(found) > 50 and len(set(found)) > 1


def test_clocks_that_are_not_of_one_pll() -> None:
    hand = Hand()
    (clock,) = hand.pll(CLKOP=(3, 1))
    hand.pin_out("led_0__io", hand.toggle(clock))
    hand.pin_out("led_1__io", hand.toggle(hand.pin_in("other__io")))
    with pytest.raises(FpgaError, match="clocks of one PLL, this one has others"):
        NetlistLine(hand.module, clock_hz=HZ, baud=HZ // 10)


def test_a_pin_that_is_not_always_an_output() -> None:
    hand = Hand()
    (clock,) = hand.pll(CLKOP=(3, 1))
    hand.pin_both("led_0__io", "1", hand.toggle(clock))
    with pytest.raises(FpgaError, match="pin led_0__io, which is not always an output"):
        NetlistLine(hand.module, clock_hz=HZ, baud=HZ // 10)
