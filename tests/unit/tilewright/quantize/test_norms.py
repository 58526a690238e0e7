"""Norms and the sums before them: in 8 bits where that is enough, else those that are too loud in floats."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tilewright.isa.program import NpuStep, Program
from tilewright.quantize import norms, precision, ranges
from tilewright.quantize.accuracy import Accuracy, tune
from tilewright.quantize.equalise import equalise
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.observe import run, session
from tilewright.quantize.prepare import prepare
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.verifying import verify_here
from tilewright.quantize.writing import quantised_layers, write

_CHANNELS = 16


def _samples(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(24, _CHANNELS)).astype(np.float32)} for _ in range(count)]


def _transformer(loud: float = 1.0) -> onnx.ModelProto:
    """Two blocks x1 = LN(x + W relu(V x)) between two products.

    Args:
        loud: gain of two channels of the first block's result, which the norm behind takes back.
    """
    random, nodes, held = np.random.default_rng(3), [], {}

    def product(x: str, y: str, gains: np.ndarray | float = 1.0) -> None:
        held[f"w{y}"] = (random.normal(size=(_CHANNELS, _CHANNELS)) / 4 * gains).astype(np.float32)
        held[f"b{y}"] = (random.normal(size=_CHANNELS) * gains).astype(np.float32)
        nodes.append(helper.make_node("Gemm", [x, f"w{y}", f"b{y}"], [y], y))

    product("x", "x0")
    for i in (0, 1):
        product(f"x{i}", f"v{i}")
        nodes.append(helper.make_node("Relu", [f"v{i}"], [f"r{i}"], f"r{i}"))
        product(f"r{i}", f"p{i}", np.where(np.arange(_CHANNELS) < 2, loud if i == 0 else 1.0, 1.0))
        nodes.append(helper.make_node("Add", [f"x{i}", f"p{i}"], [f"s{i}"], f"s{i}"))
        gains = np.where((np.arange(_CHANNELS) < 2) | (i > 0), 1.0, loud)
        held |= {f"g{i}": gains.astype(np.float32), f"h{i}": np.zeros(_CHANNELS, np.float32)}
        names = [f"s{i}", f"g{i}", f"h{i}"]
        nodes.append(helper.make_node("LayerNormalization", names, [f"x{i + 1}"], f"n{i}"))
    product("x2", "y")
    return prepare(model_of(nodes, {"x": [24, _CHANNELS]}, ["y"], held))


def _recipe(model: onnx.ModelProto) -> Recipe:
    return Recipe(model, ranges.find(model, _samples(8), "minmax"))


@pytest.mark.parametrize("loud, expected", [(1.0, set()), (300.0, {"s0", "n0"})])
def test_the_loud_sum_and_its_norm_are_in_floats(loud: float, expected: set[str]) -> None:
    """Only those beside the loud tensor, none where all are quiet."""
    found = norms.in_floats(_recipe(_transformer(loud)), _samples(4), 21.5)
    assert found == dict.fromkeys(expected, Precision.FLOAT)


@pytest.mark.parametrize("power, expected", [(1.0, set()), (5.0, {"high", "mean", "root"})])
def test_a_mean_of_powers_is_in_floats(power: float, expected: set[str]) -> None:
    """Small values of x^5 have no steps; a plain mean is quiet. What is found brings the noise down."""
    random = np.random.default_rng(1)
    held = {
        "w": random.normal(size=(8, 3, 3, 3)).astype(np.float32), "v": random.normal(size=(8, 6)).astype(np.float32),
        "p": np.array(power, np.float32), "r": np.array(1 / power, np.float32), "e": np.array(1e-3, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Clip", ["c", "e"], ["d"], "clip"),
        helper.make_node("Pow", ["d", "p"], ["h"], "high"),
        helper.make_node("GlobalAveragePool", ["h"], ["m"], "mean"),
        helper.make_node("Pow", ["m", "r"], ["o"], "root"),
        helper.make_node("Flatten", ["o"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "out"),
    ]
    model = prepare(model_of(nodes, {"x": [1, 3, 8, 8]}, ["y"], held))
    samples = [{"x": random.normal(size=(1, 3, 8, 8)).astype(np.float32) * (1 + i % 4)} for i in range(8)]
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    found = norms.in_floats(recipe, samples, 21.5)
    assert found == dict.fromkeys(expected, Precision.FLOAT)
    judge = Judge(model, samples)
    assert not expected or judge.noise(recipe.with_precision(found)).max() < judge.noise(recipe).max() / 2


@pytest.mark.parametrize("width, floats", [(256, True), (8, False)])
def test_what_a_logarithm_reads_is_in_floats(width: int, floats: bool) -> None:
    """A spectrum, its energy in bands and the logarithm, before a network that is much larger; else it stays."""
    random = np.random.default_rng(2)
    wave = np.cos(np.outer(np.arange(32), np.arange(16)) * np.pi / 32)
    held = {"dft": wave.astype(np.float32), "bands": np.abs(random.normal(size=(16, 8))).astype(np.float32)}
    held |= {"e": np.array(1e-6, np.float32)}
    held |= {n: (random.normal(size=s) / 4).astype(np.float32) for n, s in (("w", (8, width)), ("v", (width, width)))}
    lines = ["MatMul x dft f", "Mul f f p", "MatMul p bands b", "Add b e c", "Log c l", "MatMul l w r", "MatMul r v y"]
    nodes = [helper.make_node(op, ins, [out], out) for op, *ins, out in map(str.split, lines)]
    model = prepare(model_of(nodes, {"x": [4, 32]}, ["y"], held))
    samples = [{"x": (random.normal(size=(4, 32)) * 10.0 ** (i % 3 - 1)).astype(np.float32)} for i in range(8)]
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    found = norms.in_floats(recipe, samples, 21.5)
    layer_of = Network(model).layer_of
    front = {layer_of[name].name for name in layer_of if name not in ("r", "y")}
    assert len(front) == 4 and found == (dict.fromkeys(front, Precision.FLOAT) if floats else {})
    judge = Judge(model, samples)
    assert not floats or judge.noise(recipe.with_precision(found)).max() < judge.noise(recipe).max() / 10


def test_what_the_user_chose_stays() -> None:
    recipe = _recipe(_transformer(300.0))
    chosen = recipe.with_precision({"s0": Precision.INT16})
    assert "s0" not in norms.in_floats(chosen, _samples(4), 21.5)


def test_without_norms_the_sums_follow() -> None:
    """All norms in floats leave nothing but the products and what stands between two of them."""
    recipe = _recipe(_transformer())
    without = recipe.with_precision(precision.of_kind(recipe, Kind.NORM))
    chosen = quantised_layers(Network(recipe.model), without)
    assert precision.of_kind(recipe, Kind.NORM) == dict.fromkeys(("n0", "n1"), Precision.FLOAT)
    assert set(chosen) == {"x0", "v0", "p0", "v1", "p1", "y"} and precision.of_kind(without, Kind.NORM) == {}


def test_loudest_are_found_by_halves() -> None:
    """A quiet network takes one measurement; what halves make together does not hide a loud one."""
    noises, calls = {f"t{i}": 0.001 for i in range(16)}, []

    def measure(names: list[str]) -> np.ndarray:
        calls.append(list(names))
        return np.array([0.0, sum(noises[name] for name in names)])

    assert norms.loudest(list(noises), measure, 0.1) == [] and len(calls) == 1
    noises["t5"] = 0.5
    assert norms.loudest(list(noises), measure, 0.1) == ["t5"] and len(calls) < 12


def test_a_sum_in_floats_takes_the_factors_back() -> None:
    """A tensor that a product and a sum in floats read is equalised for the product; the function stays."""
    model = _transformer()
    gains = np.where(np.arange(_CHANNELS) < 1, 40.0, 1.0).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(gains, "loud"))
    next(node for node in model.graph.node if node.name == "n0").input[1] = "loud"
    floats = {"s1": Precision.FLOAT, "n1": Precision.FLOAT}
    found, _ = equalise(model, _samples(4), precision=floats)
    multiplied = next(node for node in found.graph.node if node.name == "x1_multiply")
    reads = {node.name: list(node.input) for node in found.graph.node}
    assert multiplied.output[0] in reads["s1"] and multiplied.input[0] in reads["v1"]
    for sample in _samples(2, seed=5):
        wanted, got = (run(session(m), sample)["y"] for m in (model, found))
        assert np.allclose(wanted, got, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    noise = []
    for one in (model, found):
        recipe = Recipe(one, ranges.find(one, _samples(8), "minmax"), floats)
        quantised = session(write(recipe))
        noise.append(sum(np.square(run(quantised, x)["y"] - run(session(model), x)["y"]).sum() for x in _samples(4, 9)))
    assert noise[1] < noise[0] / 2


@pytest.mark.medium
@pytest.mark.parametrize("loud, in_floats, turns", [(1.0, 0, 1), (300.0, 4, 2)])
def test_turns_of_a_transformer(loud: float, in_floats: int, turns: int) -> None:
    """A quiet transformer is one turn of the NPU; a loud norm takes one more, and reaches the goal by it."""
    decision = tune(Recipe(_transformer(loud)), _samples(24), Accuracy(pays=False))
    chosen = decision.chosen
    assert (chosen.others, chosen.kept) == (in_floats, 0) and chosen.decibels >= 20
    assert ("but in 4 other layers, which multiply nothing" in str(chosen)) == bool(in_floats)
    program = tw.compile(write(chosen.measured.recipe), config="base", effort=0, cache=False)
    assert isinstance(program, Program)
    assert sum(isinstance(step, NpuStep) for step in program.steps) == turns


def test_a_norm_in_parts_is_one_layer() -> None:
    """PyTorch exports it so to opset 14."""
    held = {f"w{i}": np.eye(8, dtype=np.float32) for i in (0, 1)} | {
        "two": np.array(2, np.float32), "e": np.array(1e-5, np.float32), "g": np.ones(8, np.float32),
        "h": np.zeros(8, np.float32),
    }  # fmt: skip
    lines = [
        "MatMul x w0 a", "ReduceMean a m", "Sub a m d", "Pow d two q", "ReduceMean q v", "Add v e k", "Sqrt k r",
        "Div d r n", "Mul n g o", "Add o h z", "MatMul z w1 y",
    ]  # fmt: skip
    nodes = []
    for op, *ins, out in map(str.split, lines):
        nodes.append(helper.make_node(op, ins, [out], out, **({"axes": [-1]} if op == "ReduceMean" else {})))
    model = model_of(nodes, {"x": [4, 8]}, ["y"], held)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 14))
    kinds = [layer.kind for layer in Network(prepare(model)).layers]
    assert kinds == [Kind.PRODUCT, Kind.NORM, Kind.PRODUCT]


@pytest.mark.medium
def test_attention_with_a_mask_is_one_turn() -> None:
    """A mask made of an input, for all heads and queries, is added on the NPU, with the bytes of onnxruntime."""
    random, held = np.random.default_rng(0), {}
    for name, shape in (("wq", (16, 16)), ("wk", (16, 16)), ("wv", (16, 16)), ("wy", (16, 4))):
        held[name] = (random.normal(size=shape) / 2).astype(np.float32)
    held["far"] = np.array(-10000, np.float32)
    lines = [
        "MatMul x wq q", "MatMul x wk k", "MatMul x wv v", "Transpose k t", "MatMul q t s", "Mul out far mask",
        "Add s mask m", "Softmax m p", "MatMul p v o", "MatMul o wy y",
    ]  # fmt: skip
    nodes = []
    for op, *ins, out in map(str.split, lines):
        nodes.append(helper.make_node(op, ins, [out], out, **({"perm": [0, 1, 3, 2]} if op == "Transpose" else {})))
    model = model_of(nodes, {"x": [1, 2, 8, 16], "out": [1, 1, 1, 8]}, ["y"], held)
    samples = []
    for i in range(8):
        x = random.normal(size=(1, 2, 8, 16)).astype(np.float32)
        samples.append({"x": x, "out": (np.arange(8) > 3 + i % 5).astype(np.float32).reshape(1, 1, 1, 8)})
    verified = verify_here(tw.quantize(model, samples, held_back=0).model, samples[0])
    assert verified.turns == 1 and verified.npu_macs == verified.macs and not verified.report.mismatches
