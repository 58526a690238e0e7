"""Axes of plots: labels that read differently, and a logarithmic scale with labels where it is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import Formatter, NullLocator

from tilewright.measure.labels import short


def number_text(value: float) -> str:
    """Formats a number of an axis with a prefix: 1234567 as 1.2M, and 0."""
    return short(value) or "0"


_FACTORS = {"G": 1e9, "M": 1e6, "k": 1e3}
#: Of the step between neighbours: labels are no further from their values.
_ROUNDED = 0.05


def _are_distinct(labels: Sequence[str], values: Sequence[float]) -> bool:
    """Whether labels differ where values do, and say what they are: 12k is not 12,500 beside 15k."""
    ordered = sorted(set(values))
    if len(set(labels)) < len(ordered):
        return False
    step = min((b - a for a, b in itertools.pairwise(ordered)), default=math.inf)
    return all(abs(_number(text) - value) <= _ROUNDED * step for text, value in zip(labels, values))


def _number(text: str) -> float:
    factor = _FACTORS.get(text[-1], 1.0)
    return float(text.rstrip("GMk")) * factor


class Prefixed(Formatter):
    """Labels with prefixes (12k), with as many digits as it takes to tell neighbours apart.

    `values` are in the unit of the axis; all labels of an axis have the prefix of the largest if more digits are
    needed than `short` shows.
    """

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """All labels of an axis."""
        plain = [number_text(value) for value in values]
        if _are_distinct(plain, values):
            return plain
        largest = max(abs(value) for value in values)
        factor, letter = next(((f, x) for x, f in _FACTORS.items() if largest >= f), (1.0, ""))
        for digits in range(12):
            found = [f"{value / factor:.{digits}f}{letter}" for value in values]
            if _are_distinct(found, values):
                return found
        return plain

    def __call__(self, value: float, position: int | None = None) -> str:
        return number_text(value)


def scale(axes: Axes, values: Sequence[float], which: str) -> None:
    """Logarithmic where the values span much; numbers with prefixes. `which` is "x" or "y"."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = min(values), max(values)
    if low > 0 and high / low > 8:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        if high / low < 200:  # decades alone would leave one label or none
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            ticks = [m * 10**e for e in decades for m in (1, 2, 5)]
            axis.set_ticks([t for t in ticks if low / 1.5 <= t <= high * 1.5])
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(Prefixed())
