"""Choosing between several measured quantisations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.unit.tilewright.quantize import networks
from tilewright.quantize import times
from tilewright.quantize.accuracy import Accuracy, tune
from tilewright.quantize.decision import Candidate, Decision
from tilewright.quantize.judging import Judge, Measured, noise_of
from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.metric import task_of
from tilewright.quantize.plots import pareto_picture
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.samples import Subset
from tilewright.quantize.writing import quantised_layers


def candidate(name: str, *decibels: float, kept: int = 0, cycles: float = 1e6, flips: float = 0.0) -> Candidate:
    noise = 10 ** (-np.array(decibels) / 10)
    measured = Measured(Recipe(onnx.ModelProto()), noise, np.full(len(decibels), flips))
    return Candidate(name, measured, min(decibels), kept, 54, kept / 54, cycles)


def test_int8_is_the_one_to_beat() -> None:
    """A gain above the goal is none; below it, it must pay its time; a candidate that is worse is never taken."""
    first = candidate("fitted", 16.0)
    chosen = lambda *others, pays=True, goal=21.5: Decision([first, *others], goal, pays).chosen.name
    assert chosen(candidate("better", 26.0, kept=3, cycles=1.1e6)) == "better"
    assert chosen(candidate("dear", 17.5, kept=3, cycles=2e6)) == "fitted"
    assert chosen(candidate("dear", 26.0, kept=3, cycles=2e6), pays=False) == "dear"
    assert chosen(candidate("worse", 15.0, kept=30, cycles=1.1e6), pays=False) == "fitted"
    assert chosen(candidate("better", 26.0, kept=3, cycles=1.1e6), goal=None) == "fitted"
    assert chosen(candidate("nearest", 14.0), candidate("reaches", 22.0)) == "reaches"
    three, nine = candidate("three", 22.0, kept=3, cycles=2e6), candidate("nine", 40.0, kept=9, cycles=4e6)
    assert chosen(nine, three, pays=False) == "three"
    reached = Decision([candidate("fitted", 22.0), three], 21.5)
    assert reached.chosen.name == "fitted"
    two = Decision([candidate("a", 60.0, 12.0), candidate("b", 90.0, 11.0, kept=1)], 21.5)
    assert two.chosen.name == "a"  # what is far above the goal already does not count


def test_the_plain_quantiser_is_a_floor() -> None:
    """A candidate that comes near the plain quantiser is taken where that has more: the one worth most, any if none."""
    first, steps = candidate("fitted", 35.0), candidate("steps", 38.8, 1.5e6, kept=4)
    others = [first, steps, candidate("whole", 39.0, 2e6, kept=20)]
    chosen = lambda floor: Decision(others, 21.5, floor=floor).chosen.name
    assert [chosen(floor) for floor in (34.0, 38.5, 38.9, 50.0)] == ["fitted", "steps", "whole", "fitted"]
    assert "as the plain quantiser, which leaves as much in floats" in str(Decision(others, 21.5, floor=38.5))


def test_a_plain_quantiser_that_leaves_nearly_all_in_floats_is_named() -> None:
    plain = candidate("plain", 39.2, kept=53)
    decision = Decision([candidate("fitted", 32.0)], 21.5, plain=plain)
    assert str(decision).endswith("chosen; onnxruntime's plain quantiser leaves 98% of the MACs in floats: 39.2 dB")


def test_chance_is_no_gain() -> None:
    """A gain on some samples and a loss on others is no reason to take another; a gain on all is."""

    def measured(decibels: list[float]) -> Measured:
        energies = np.array([[(1.0, 10 ** (-x / 10)) for x in decibels]])
        return Measured(Recipe(onnx.ModelProto()), noise_of(energies), np.zeros(1), energies=energies)

    plain = measured([20.0, 21.0, 25.0, 22.0, 19.0, 24.0, 23.0, 20.0])
    outlier = measured([19.7, 20.7, 24.7, 21.7, 26.0, 23.7, 22.7, 19.7])  # half a decibel in the sum, by one sample
    steady = measured([20.4, 21.6, 25.3, 22.5, 19.4, 24.6, 23.5, 20.3])
    assert outlier.mean > plain.mean + 0.4 and outlier.better(plain) is plain
    assert steady.mean < outlier.mean and steady.better(plain) is steady
    rows = [Candidate(name, x, x.mean, 0, 54, 0.0, 1e6) for name, x in (("plain", plain), ("outlier", outlier))]
    assert Decision(rows, 21.5).chosen.name == "plain"


def test_floats_that_only_the_margin_asks_for_are_not_kept() -> None:
    """Int8 that has the goal, if not clearly more than the first candidate, is enough where floats would be taken."""

    def measured(
        name: str, output: list[float], scores: list[float], cycles: float = 1e6, others: int = 0
    ) -> Candidate:
        energies = np.array([[(1.0, 10 ** (-x / 10)) for x in row] for row in (output, scores)])
        found = Measured(Recipe(onnx.ModelProto()), noise_of(energies), np.zeros(2), energies=energies)
        return Candidate(name, found, float(found.decibels[0]), 0, 54, 0.0, cycles, others)

    plain = measured("plain", [24.0, 25.0, 24.5, 24.0], [18.6, 19.0, 18.5, 19.5])
    int8 = measured("int8", [21.0, 29.0, 30.0, 26.0], [17.6, 22.0, 23.0, 20.0])
    floats = measured("floats", [29.0, 29.4, 29.2, 30.0], [23.5, 24.2, 24.0, 24.4], 1.17e6, 51)
    assert not int8.better(plain) and floats.better(plain) and 20 < int8.measured.decibels[1] < 21.5
    made = lambda *rows, margin=1.5, pays=True: Decision(rows, 21.5, pays, beat=plain, margin=margin)
    assert made(plain, int8, floats).chosen is int8 and made(plain, int8).chosen is plain
    assert (
        made(plain, int8, floats, margin=0.5).chosen is floats
        and made(plain, int8, floats, pays=False).chosen is floats
    )
    assert str(made(plain, int8, floats)).startswith(
        f"int8 everywhere: {int8.decibels:.1f} dB, about 1 M cycles; chosen: "
    )
    poor = measured(
        "int8", [20.0, 22.0, 22.0, 20.5], [19.0, 22.0, 23.0, 19.8]
    )  # the output itself is within the margin
    assert made(plain, poor, floats).chosen is floats


def test_flips_count_as_noise() -> None:
    quiet, turned = candidate("quiet", 22.0), candidate("turned", 22.0, flips=0.01)
    assert quiet.measured.level(21.5) == 21.5 and turned.measured.level(21.5) == pytest.approx(11.5)


def test_what_a_person_reads() -> None:
    one, two = candidate("fitted", 12.0, cycles=1.29e6), candidate("3 layers", 28.1, kept=3, cycles=1.41e6)
    decision = Decision([candidate("minmax", 11.0, cycles=1.29e6), one, two, candidate("worse", 9.0, kept=9)], 21.5)
    assert str(decision) == (
        "int8 everywhere: 12.0 dB, about 1.29 M cycles; chosen: 3 of 54 products not in int8 (5.6% of the MACs): "
        "28.1 dB, about 1.41 M cycles; --fastest gives the first"
    )
    rows = decision.to_dict()["candidates"]
    assert [row["name"] for row in rows if row["pareto"]] == ["fitted", "3 layers"] or rows[3]["pareto"]
    assert [row["name"] for row in rows if row["chosen"]] == ["3 layers"]
    assert pareto_picture(decision, "png").startswith(b"\x89PNG")
    assert str(Decision([one], None)).endswith("cycles; chosen")


def test_a_target_of_ones_own_has_no_price() -> None:
    assert Accuracy().must_pay and not Accuracy(target=30).must_pay and not Accuracy(pays=False).must_pay


@pytest.mark.medium
def test_plain_is_a_candidate() -> None:
    """Nothing worse than ranges by extremes and weights to the nearest is chosen, and every candidate is timed."""
    model, samples = networks.deep(depth=4), networks.samples(12)
    found = tune(Recipe(model), samples, Accuracy(target=None))
    assert found.candidates[0].name == "minmax" and found.candidates[-1].name == "fitted"
    assert len({x.cycles for x in found.candidates}) == 1
    chosen = found.chosen.measured
    assert all(x.measured.better(chosen) is chosen for x in found.candidates)


def test_a_layer_in_floats_takes_a_turn_more() -> None:
    network = Network(networks.deep(depth=6))
    every = quantised_layers(network, Recipe(network.model))
    names = [layer.name for layer in network.layers if layer.kind is Kind.PRODUCT]
    whole = times.all_cycles(network, every)
    without = lambda *gone: times.all_cycles(network, {n: p for n, p in every.items() if n not in gone})
    more = {x.name: times.cycles(network, x, None) - times.cycles(network, x, Precision.INT8) for x in network.layers}
    assert without("conv2") == pytest.approx(whole + more["conv2"] + times.TURN)
    assert without(names[0]) == pytest.approx(whole + more[names[0]])  # no border before it
    swish = network.layer_of["h2"].name
    both = whole + more["conv2"] + more[swish]
    assert without("conv2", swish) == pytest.approx(both + times.TURN)
    assert without("conv2", swish, "conv4") == pytest.approx(both + more["conv4"] + 2 * times.TURN)
    assert times.all_cycles(network, dict.fromkeys(every, Precision.INT16)) == without(*every)


def test_a_metric_is_judged_by_its_change() -> None:
    """Large figures may be good or bad; labels are those of the samples that are judged."""
    outputs = [{"y": np.eye(4)[i % 4]} for i in range(8)]
    wrong = [{"y": np.eye(4)[(i + (i == 0)) % 4]} for i in range(8)]
    task = task_of("top1", np.arange(16) % 4, Subset(range(16), range(4, 12)))
    assert task is not None and task.lost(wrong, outputs) == pytest.approx(12.5) and task.lost(outputs, outputs) == 0
    assert task.at([0, 1]).lost(wrong[:2], outputs[:2]) == pytest.approx(50)
    own = task_of(f"{__name__}:error", None, range(8))
    assert own is not None and own.lost(wrong, outputs) == pytest.approx(100)  # the first one gives the scale
    assert own.lost(outputs, outputs) == 0
    assert task_of("top1", None, range(8)) is None and task_of(None, None, range(8)) is None


def error(outputs: list[dict[str, np.ndarray]], labels: list[dict[str, np.ndarray]]) -> float:
    """A metric that is 0 at its best."""
    return max(float(np.abs(a["y"] - b["y"]).max()) for a, b in zip(outputs, labels))


def near(outputs: list[dict[str, np.ndarray]], labels: list[dict[str, np.ndarray]]) -> float:
    """Share of samples whose results are all within 0.3 % of the largest."""
    values = [(next(iter(a.values())), next(iter(b.values()))) for a, b in zip(outputs, labels)]
    return float(np.mean([np.abs(a - b).max() < 0.003 * np.abs(b).max() for a, b in values]))


def test_the_metric_counts_beside_the_decibels() -> None:
    """A candidate with enough dB is not enough for a metric that wants more."""
    quiet, task = candidate("int8", 25.0), candidate("floats", 24.0, kept=3, cycles=1.1e6)
    lossy = replace(quiet, measured=replace(quiet.measured, lost=20.0))
    assert Decision([quiet, task], 21.5).chosen is quiet and Decision([lossy, task], 21.5).chosen is task
    assert not lossy.measured.reaches(21.5) and lossy.to_dict()["metric_loss"] == 20.0


@pytest.mark.medium
def test_a_metric_of_ones_own_decides() -> None:
    """The chosen network satisfies it better than what is chosen without it."""
    model, samples = networks.deep(), networks.samples(24)
    task = task_of(f"{__name__}:near", None, samples)
    without = tune(Recipe(model), samples, Accuracy(pays=False)).chosen.measured
    with_it = tune(Recipe(model), samples, Accuracy(pays=False), task=task).chosen.measured
    judge = Judge(model, samples, task_of(f"{__name__}:near", None, samples))
    assert judge.measure(with_it.recipe).lost < judge.measure(without.recipe).lost
