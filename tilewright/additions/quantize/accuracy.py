"""Derives a recipe that keeps the network's accuracy: the steps of `quantize` by default.

    1. all layers in 8 bits, weights rounded to the nearest: the network of onnxruntime's plain quantiser (`plain`),
       which has the extremes of each tensor as ranges, and those of the least error (`ranges`); of the model as it is,
       and with channels equalised (`equalise`) and split (`splitting`), sums before norms in floats where they are too
       loud for 8 bits (`norms`)
    2. the best of these with weights and biases fitted to what each product reads (`correction`)
    3. while an output misses its goal: with the layers in floats that make most noise for the time they take
       (`precision`), fitted anew

The plain quantiser leaves recurrent layers in floats. With a tenth of the multiply-accumulates there at most its
network is one to take, at once where it has the goal; with more it is a floor: steps of these layers stay in floats,
too, where all in 8 bits is below. In 8 bits they take long to run, so that other choices are compared with them in
floats.

All are measured as a whole (`judging`), one is better than those before only if it is clearly so, and `decision` says
which of them is taken: so what the plain quantiser has is the least that one gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from tilewright.quantize import classes, correction, norms, precision, ranges, times
from tilewright.quantize.decision import SLACK, Candidate, Decision
from tilewright.quantize.equalise import equalise
from tilewright.quantize.judging import FLIPS, Judge, Measured
from tilewright.quantize.layers import Kind
from tilewright.quantize.metric import Task
from tilewright.quantize.plain import quantises_all, with_outputs
from tilewright.quantize.recipe import Precision, Progress, Recipe, Samples
from tilewright.quantize.rounding import LIMIT
from tilewright.quantize.self_gated import opened
from tilewright.quantize.splitting import split

TARGET = 20.0
"""Default target of each output's SQNR, in dB."""

BEST_TARGET = 40.0
"""Target of --best, in dB."""

MARGIN = 1.5
"""Margin above the target on calibration samples, in dB: other samples are worse."""

MOST_FLOATS = 0.1
"""Share of the multiply-accumulates that may stay in floats without being asked for."""

_MOST_BY_FIT = 2.0
"""dB that fitting gains where steps of recurrent layers have 8 bits, at most."""

_MOSTLY = 0.9
"""Share of the multiply-accumulates in floats from which on a plain quantiser is none to compare with."""

_CAUTION = (0.8, 0.4)
"""Noise to aim at in each round, as a fraction of the goal's: what is left is seldom as small as the parts say."""

_EASIER = 0.5  # noise to aim at, as a fraction of what it is, for outputs whose classes flip


@dataclass(frozen=True)
class Accuracy:
    """Options of the search for accuracy.

    Attributes:
        ranges: one of `ranges.METHODS`; None takes the better of "mse" and "minmax".
        equalise: give the channels of tensors like ranges, or several tensors where that cannot be.
        fit: fit weights and biases.
        target: SQNR in dB that each output has to reach, by keeping layers in floats; None keeps none.
        pays: keep in floats only what pays, and `MOST_FLOATS` at most; False reaches the target at any price, as does
            None for another target than the default.
        keep_float, int16: nodes or ops with that precision, by name; * and ? as in file names.
    """

    ranges: str | None = None
    equalise: bool = True
    fit: bool = True
    target: float | None = TARGET
    pays: bool | None = None
    keep_float: Sequence[str] = ()
    int16: Sequence[str] = ()

    @property
    def must_pay(self) -> bool:
        return self.target == TARGET if self.pays is None else self.pays


def tune(
    recipe: Recipe, samples: Samples, wanted: Accuracy, progress: Progress | None = None, task: Task | None = None,
    every: Samples | None = None, plain: onnx.ModelProto | None = None, seen: ranges.Seen | None = None,
) -> Decision:  # fmt: skip
    """Recipes with ranges, weights, biases and precisions, and which of them to take. The given one is left unchanged.

    Args:
        task: the user's metric, which counts beside the SQNR.
        every: what ranges have to hold: `samples`, and those held back to measure on; `samples` by default.
        plain: the network of onnxruntime's plain quantiser; see `plain`.
        seen: of the model on `every`, as far as it was looked at.

    Raises:
        UsageError: a pattern that no node has, or onnxruntime cannot run the model on a sample; the metric fails.
    """
    network = recipe.network
    asked = precision.by_patterns(network, wanted.keep_float, wanted.int16)
    outputs = len(recipe.model.graph.output)
    with classes.extra_outputs(recipe.model):
        first = replace(recipe, precision={**recipe.precision, **asked})
        judge = Judge(recipe.model, samples, task, outputs)
        only = plain is not None and wanted.ranges is None and not asked and recipe.limit == LIMIT
        plain = with_outputs(plain, recipe.model) if only else None
        count = len(network.float_outputs()) or len(recipe.network.float_outputs())
        found = _Search(
            first, samples, every or samples, wanted, count, judge, progress, plain, seen or ranges.Seen()
        ).run()
    if plain is not None:
        classes.drop_outputs(plain, outputs)
    for one in found.candidates:
        if one.measured.recipe.model is not recipe.model:
            classes.drop_outputs(one.measured.recipe.model, outputs)
    return found


_OPENED = 1.0
"""Least gain of `self_gated.opened` beside all in 8 bits, in dB, for which the passes that it adds pay."""


class _Search:
    """Makes and measures the candidates.

    Args:
        outputs: float outputs of the user's model, which come first; where it has integers only, the scores of these.
        written: the plain quantiser's network.
        seen: of the model, so far.
    """

    def __init__(
        self, recipe: Recipe, samples: Samples, every: Samples, wanted: Accuracy, outputs: int, judge: Judge,
        progress: Progress | None, written: onnx.ModelProto | None, seen: ranges.Seen,
    ) -> None:  # fmt: skip
        self.recipe, self.samples, self.wanted, self.progress = recipe, samples, wanted, progress
        self.written, self.steps = written, precision.of_kind(recipe, Kind.RECURRENT)
        self.quick = self.steps if wanted.target is not None and wanted.must_pay else {}
        self.every, self.outputs = every, outputs
        self.judge = judge
        self.goal = None if wanted.target is None else wanted.target + MARGIN
        self.candidates: list[Candidate] = []
        self.beat: Candidate | None = None
        self.beside: Candidate | None = None
        self.free = False  # from what the plain quantiser has, which is none to choose
        self.seen = seen
        self.uneven, self.seen_uneven = recipe, seen  # before channels are equalised

    def run(self) -> Decision:
        plain = self._plain_with_recurrent()
        if plain is not None and plain.share <= MOST_FLOATS:
            self.beat = plain
            self.candidates.append(plain)
            if self.goal is not None and plain.measured.reaches(self.goal):  # more gains nothing, and takes long
                self._measure("all in 8 bits", plain.measured.recipe.with_precision(self.recipe.precision))
                return self._decision()
        self.free = plain is not None and plain.share > MOST_FLOATS
        best = self._in_8_bits()
        if self.candidates[0].measured.recipe.written is not None and self.beat is None:
            self.beat = self.candidates[0]
        self.plain = replace(best.recipe, precision=self._without_steps(best.recipe), written=None)
        if self.plain.precision != best.recipe.precision:
            best = self._measure("all in 8 bits", self.plain)
        least = plain.decibels - SLACK if plain is not None and MOST_FLOATS < plain.share <= _MOSTLY else -np.inf
        if self.wanted.fit and self._worst(best) >= least - _MOST_BY_FIT:
            best = self._fitted(self.plain).better(best)
        floor = -np.inf
        if plain is not None and self.free and self._worst(best) < plain.decibels - SLACK:
            floor, best = self._keep_recurrent(best, plain)
        if self.goal is not None and best.noise.size and not best.reaches(self.goal):
            self._keep_floats(best, self.goal)
            if not any(x.measured.reaches(self.goal) for x in self.candidates):
                self._open_gates(self.goal)
        return self._decision(floor)

    def _decision(self, floor: float = -np.inf) -> Decision:
        return Decision(self.candidates, self.goal, self.wanted.must_pay, floor, self.beat, self.beside, MARGIN)

    def _without_steps(self, recipe: Recipe) -> dict[str, Precision]:
        """The precisions, with the steps of recurrent layers in 8 bits again."""
        return {k: v for k, v in recipe.precision.items() if k not in self.quick}

    def _plain_with_recurrent(self) -> Candidate | None:
        """The plain quantiser's network where that has recurrent layers, which it leaves in floats; None if it cannot
        decide anything."""
        whole = precision.recurrent(self.recipe)
        if not whole or self.goal is None or not self.wanted.must_pay:
            return None
        made = self._ranged(self.recipe, ["minmax"])["minmax"].with_precision({**self.recipe.precision, **whole})
        measured = self.judge.measure(replace(made, written=self.written))
        return Candidate.of("plain", measured, self.outputs) if measured.noise.size else None

    def _keep_recurrent(self, best: Measured, plain: Candidate) -> tuple[float, Measured]:
        """Measures candidates with recurrent layers in floats, as the plain quantiser, which has more dB, leaves them.

        Returns:
            SQNR of the worst output in dB that is wanted for that reason, -inf without one; the best.
        """
        floor = plain.decibels - SLACK
        if plain.share > _MOSTLY:
            self.beside = plain
            return -np.inf, best
        self.candidates.append(plain)
        for name, kept in (("steps", self.steps), ("recurrent layers", precision.recurrent(self.plain))):
            recipe = self.plain.with_precision({**self.plain.precision, **kept})
            name = f"{name} in floats"
            tried = self._fitted(recipe, name=name) if self.wanted.fit else self._measure(name, recipe)
            if self._worst(tried) >= floor:
                return floor, tried
            share = next(x.share for x in self.candidates if x.measured is tried)
            if share <= MOST_FLOATS and tried.near(plain.measured, SLACK):
                return min(floor, self._worst(tried)), tried
        return floor, best

    def _worst(self, measured: Measured) -> float:
        """SQNR of the worst output of the user's model, in dB."""
        return float(measured.decibels[: self.outputs].min(initial=200.0))

    def _with(self, base: Measured, kept: Mapping[str, Precision], name: str) -> Measured:
        """Measures a recipe with other precisions, too; fitted anew, if it is fitted."""
        recipe = base.recipe.with_precision({**base.recipe.precision, **kept})
        return self._fitted(recipe, base.recipe, name) if base.recipe.weights else self._measure(name, recipe)

    def _in_8_bits(self) -> Measured:
        """The best with weights rounded to the nearest."""
        best = self._with_ranges("", self.recipe)
        recipe = self.recipe
        if self.goal is not None and not best.reaches(self.goal):
            loud = norms.in_floats(best.recipe, self.samples, self.goal)
            recipe = replace(recipe, precision={**recipe.precision, **loud})
        self.uneven, self.seen_uneven = recipe, self.seen.copy()
        even = self._equalised(recipe) if self.wanted.equalise else recipe
        if even.model is not self.recipe.model:
            best = self._with_ranges("equalised, ", even, best)
        elif even.precision != self.recipe.precision:
            best = self._with_ranges("", even, best)
        return best

    def _equalised(self, recipe: Recipe) -> Recipe:
        """The recipe with channels equalised and split."""
        made, scaled = equalise(recipe.model, self.samples, recipe.per_channel, self.progress, recipe.precision)
        self.seen.forget(scaled)
        return replace(recipe, model=split(made, self.samples, recipe.precision, self.progress))

    def _open_gates(self, goal: float) -> None:
        """Measures the network with gates as products, which are more passes."""
        recipe, method = self.uneven, self.wanted.ranges or "mse"
        if not (self.wanted.equalise and recipe.per_channel):
            return
        model = opened(recipe.model, self.samples, recipe.precision, self.progress)
        if model is recipe.model:
            return
        rounded = [x.measured.mean for x in self.candidates if not x.share and not x.measured.recipe.weights]
        self.seen = self.seen_uneven
        self.plain = self._ranged(self._equalised(replace(recipe, model=model)), [method])[method]
        best = self._measure(f"gates opened, {method}", self.plain)
        if best.mean < max(rounded, default=-np.inf) + _OPENED:
            return
        if self.wanted.fit:
            best = self._fitted(self.plain, name="gates opened, fitted").better(best)
        if not best.reaches(goal - MARGIN):  # what these take is as long as all before
            self._keep_floats(best, goal)

    def _with_ranges(self, name: str, recipe: Recipe, best: Measured | None = None) -> Measured:
        """The best of the ways to find ranges, and of what was the best before. The first of all, by extremes, is the
        plain quantiser's network, unless that leaves products in floats. Steps of recurrent layers, which take long to
        run in 8 bits and are the same whatever the ranges of others are, are in floats here."""
        methods = [self.wanted.ranges] if self.wanted.ranges else ["minmax", "mse"]
        recipe = recipe.with_precision({**recipe.precision, **self.quick})
        for method, made in self._ranged(recipe, methods).items():
            if best is None and self.written is not None and quantises_all(self.written):
                method, made = "plain", replace(made, written=self.written)
            measured = self._measure(f"{name}{method}{', steps in floats' if self.quick else ''}", made)
            best = measured if best is None else self._better(measured, best)
        assert best is not None
        return best

    def _ranged(self, recipe: Recipe, methods: Sequence[str]) -> dict[str, Recipe]:
        """The recipe with the ranges of each method."""
        room = self.wanted.ranges is None
        found = ranges.find_all(recipe.model, self.every, methods, self.progress, room, self.seen)
        return {method: replace(recipe, ranges=one) for method, one in found.items()}

    def _better(self, new: Measured, best: Measured) -> Measured:
        """The better of two, clearly so if the one before may be the plain quantiser's."""
        return new.ahead(best) if self.free else new.better(best)

    def _fitted(self, plain: Recipe, known: Recipe | None = None, name: str = "fitted") -> Measured:
        return self._measure(name, correction.correct(plain, self.samples, progress=self.progress, known=known))

    def _measure(self, name: str, recipe: Recipe) -> Measured:
        if (known := next((x.measured for x in self.candidates if _same(x.measured.recipe, recipe)), None)) is not None:
            return known
        measured = self.judge.measure(recipe)
        self.candidates.append(Candidate.of(name, measured, self.outputs))
        return measured

    def _keep_floats(self, best: Measured, goal: float) -> None:
        """Measures candidates with layers in floats, until one reaches the goal. Weights fitted behind a layer count on
        its noise, so each choice is fitted anew behind the first layer that it changes. First come steps of recurrent
        layers, whose noise adds up, and norms, which cost no products."""
        chosen = dict(best.recipe.precision)
        for name, quiet in (("steps", self.steps), ("norms", precision.of_kind(best.recipe, Kind.NORM))):
            if not quiet:
                continue
            other = self._with(best, quiet, f"{name} in floats")
            if other.reaches(goal):
                return
            if other.better(best) is other:
                best, chosen = other, {**chosen, **quiet}
        plain = self.plain.with_precision(chosen)
        found = precision.sources(plain, self.samples, self.progress)
        most = times.all_macs(plain.network) * (MOST_FLOATS if self.wanted.must_pay else 1.0)
        noise = 10 ** (-goal / 10)
        for caution in _CAUTION:
            aim = np.where((best.flips > FLIPS) | (best.lost > 1), np.minimum(noise, best.noise * _EASIER), noise)
            kept = found.keep(best.noise, aim * caution, most)
            if not kept:
                return
            chosen |= kept
            best = self._with(best, chosen, f"{len(chosen)} layers in floats")
            if best.reaches(goal):
                return


def _same(a: Recipe, b: Recipe) -> bool:
    """Whether two recipes with weights rounded to the nearest are the same network."""
    where = a.model is b.model and a.written is b.written and not (a.weights or b.weights)
    return where and a.precision == b.precision and a.ranges == b.ranges
