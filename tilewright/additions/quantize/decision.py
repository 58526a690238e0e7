"""Decides which of the measured candidates is taken, and says what a person needs to know to take another one.

All layers in 8 bits is the candidate to beat. What keeps layers in floats is taken only where the whole network gains
more by it than its time costs; of accuracy, what lies above the goal gains nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.quantize import times
from tilewright.quantize.judging import Measured
from tilewright.quantize.layers import Kind
from tilewright.quantize.plain import left_in_floats
from tilewright.quantize.recipe import Precision
from tilewright.quantize.writing import quantised_layers

PRICE = 2.0
"""Gain in dB that pays for twice the time."""

SLACK = 0.5
"""Accuracy that may be given up beside the plain quantiser, in dB."""

FASTER = 0.9
"""Share of another candidate's time at which one is faster by more than the estimate's error."""


@dataclass(frozen=True)
class Candidate:
    """A quantisation that was measured.

    Attributes:
        name: how it was made, such as "fitted".
        decibels: SQNR of the worst output, on calibration samples that weights were not fitted on.
        kept, products: products not in 8 bits, and all of them.
        share: share of the multiply-accumulates that are not in 8 bits.
        cycles: estimated time; see `times`.
        others: layers between products that are not in 8 bits; moves do not count.
    """

    name: str
    measured: Measured
    decibels: float
    kept: int
    products: int
    share: float
    cycles: float
    others: int = 0

    @classmethod
    def of(cls, name: str, measured: Measured, outputs: int) -> Candidate:
        """The candidate of a measured recipe, whose first float outputs are those of the user's model."""
        recipe = measured.recipe
        network = recipe.network
        chosen = quantised_layers(network, recipe)
        if recipe.written is not None:
            chosen |= dict.fromkeys(left_in_floats(recipe.written, network), Precision.FLOAT)
        products = [layer for layer in network.layers if layer.multiplies]
        wide = lambda layers: [x for x in layers if chosen.get(x.name) is not Precision.INT8]
        kept, usual = wide(products), quantised_layers(network, recipe.with_precision({}))
        others = wide(x for x in network.layers if not x.multiplies and x.kind is not Kind.MOVE and x.name in usual)
        share = sum(times.macs(network, layer) for layer in kept) / max(times.all_macs(network), 1.0)
        worst = float(measured.decibels[:outputs].min(initial=200.0))
        cycles = times.all_cycles(network, chosen)
        return cls(name, measured, worst, len(kept), len(products), share, cycles, len(others))

    @property
    def in_floats(self) -> tuple[int, int]:
        """Products and other layers not in 8 bits."""
        return self.kept, self.others

    def better(self, other: Candidate) -> bool:
        """Whether it is clearly better than another one."""
        return self.measured.better(other.measured) is self.measured

    def __str__(self) -> str:
        what = f"{self.decibels:.1f} dB, about {_count(self.cycles)} cycles"
        others = f"{self.others} other layer{'' if self.others == 1 else 's'}"
        if not self.kept:
            return f"int8 everywhere{f' but in {others}, which multiply nothing' if self.others else ''}: {what}"
        others = f" and {others}" if self.others else ""
        return f"{self.kept} of {self.products} products{others} not in int8 ({self.share:.1%} of the MACs): {what}"

    @property
    def beside(self) -> str:
        """The plain quantiser's share in floats and its dB, as text."""
        return f"onnxruntime's plain quantiser leaves {self.share:.0%} of the MACs in floats: {self.decibels:.1f} dB"

    def to_dict(self) -> dict[str, Any]:
        """Returns the candidate for JSON."""
        return {
            "name": self.name, "sqnr": self.decibels, "flips": float(self.measured.flips.max(initial=0.0)),
            "kept_products": self.kept, "products": self.products, "kept_others": self.others, "kept_macs": self.share,
            "estimated_cycles": self.cycles, "metric_loss": self.measured.lost,
        }  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """The candidates, the fastest first found, and the chosen one.

    Attributes:
        goal: dB that every output should have; None where nothing was to be kept in floats.
        pays: whether what is kept in floats has to pay its time; else the goal is wanted at any price.
        floor: dB that the worst output has to have where any candidate has them: those of a plain quantiser that leaves
            more in floats than may be chosen.
        beat: the plain quantiser's network, if it may be chosen: another one has to be clearly better.
        plain: that quantiser's network where it is better, but leaves nearly all in floats, so that it is no floor.
        margin: part of the goal for what other samples may have less, in dB.
    """

    candidates: Sequence[Candidate]
    goal: float | None
    pays: bool = True
    floor: float = -math.inf
    beat: Candidate | None = None
    plain: Candidate | None = None
    margin: float = 0.0

    @property
    def fastest(self) -> Candidate:
        """The best candidate of those that keep least in floats: the first, unless another is clearly better."""
        return self._best(self.candidates)

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        least = min(x.in_floats for x in candidates)
        better = lambda best, x: x if self._ahead(x, best) else best
        return functools.reduce(better, (x for x in candidates if x.in_floats == least))

    def _allows(self, one: Candidate) -> bool:
        """Whether a candidate's worst output is no worse than that of the plain quantiser."""
        return self.beat is None or one.decibels >= self.beat.decibels - SLACK

    def _ahead(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate is clearly better than another, or as good and clearly faster."""
        faster = one.cycles < FASTER * other.cycles and one.decibels >= other.decibels - SLACK
        return self._allows(one) and (one.better(other) or (faster and one.in_floats <= other.in_floats))

    @property
    def chosen(self) -> Candidate:
        """The candidate whose accuracy, up to the goal, is worth most beside its time."""
        first, goal, found = self.fastest, self.goal, self.candidates
        if goal is None:
            return first
        if self.pays and (beat := self.beat) is not None:
            found = [x for x in found if x is beat or self._ahead(x, beat)]
            first = self._best(found)
            found = [x for x in found if x.better(first)]
        price = PRICE if self.pays else 1e-3  # of two that reach the goal, the faster one
        value = lambda x: x.measured.level(goal) - price * max(math.log2(x.cycles / first.cycles), 0.0)
        others = [first, *(x for x in found if x.in_floats > first.in_floats)]
        worth = lambda x: (value(x), -x.kept, -x.others, x.measured.mean)
        best = max([x for x in others if x.decibels >= self.floor] or others, key=worth)
        enough = [x for x in self.candidates if x.in_floats < best.in_floats and self._enough(x, first)]
        return self._best(enough) if enough else best

    def _enough(self, one: Candidate, first: Candidate) -> bool:
        """Whether a candidate has the goal, though not clearly more than the first one, where another needs floats for
        it: each output of the user's has it, and what these are functions of has it but for the margin."""
        if self.goal is None or not self.pays or one.decibels < max(self.goal, self.floor):
            return False
        ahead = one.measured.ahead(first.measured) is one.measured
        return ahead and self._allows(one) and one.measured.reaches(self.goal - self.margin)

    @property
    def front(self) -> list[Candidate]:
        """The candidates than which none is both as fast and more accurate, the fastest first."""
        found: list[Candidate] = []
        for one in sorted(self.candidates, key=lambda x: (x.cycles, -x.decibels)):
            if not found or one.decibels > found[-1].decibels:
                found.append(one)
        return found

    def __str__(self) -> str:
        return self._choice + (f"; {self.plain.beside}" if self.plain is not None else "")

    @property
    def _choice(self) -> str:
        first, chosen = self.fastest, self.chosen
        if chosen.in_floats <= first.in_floats:
            first = chosen
            missed = self.goal is not None and not chosen.measured.reaches(self.goal)
            return f"{first}; chosen" + (": nothing else that was tried pays, --best asks for more" if missed else "")
        floor = max(self.floor, self.beat.decibels - SLACK if self.beat is not None else -math.inf)
        why = f", as the plain quantiser, which leaves as much in floats, has {floor:.1f} dB or more"
        why = why if first.decibels < floor else ""
        return f"{first}; chosen: {chosen}{why}; --fastest gives the first"

    def to_dict(self) -> dict[str, Any]:
        """Returns the decision for JSON: the candidates in the order in which they were found."""
        first, chosen, front = self.fastest, self.chosen, self.front
        rows = [
            x.to_dict() | {"fastest": x is first, "chosen": x is chosen, "pareto": any(x is y for y in front)}
            for x in self.candidates
        ]
        return {"text": str(self), "goal": self.goal, "candidates": rows}


def _count(cycles: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if cycles >= limit:
            return f"{cycles / limit:.3g} {unit}"
    return f"{cycles:.0f}"
