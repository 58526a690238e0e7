"""LSTM, GRU and RNN: products of their inputs on their own, their steps in integers, equal in both runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.common.onnx_models import run
from tilewright.compiler.importer.onnx.control import MAX_UNROLLED_INTEGERS
from tilewright.quantize import first_steps, quantize, ranges, recurrent_integers, recurrent_ops
from tilewright.quantize.accuracy import Accuracy, tune
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.prepare import prepare
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.recurrent_steps import opened, value_name, values_of
from tilewright.quantize.verifying import verify_here
from tilewright.quantize.writing import write

_STEPS, _INPUTS, _HIDDEN = 6, 12, 20
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

#: Op, attributes, batch, whether first states are inputs.
CASES: list[tuple[str, dict[str, Any], int, bool]] = [
    ("LSTM", {}, 1, False),
    ("LSTM", {"direction": "bidirectional"}, 2, True),
    ("LSTM", {"direction": "reverse"}, 1, True),
    ("GRU", {"linear_before_reset": 1}, 1, False),
    ("GRU", {"direction": "bidirectional"}, 1, True),
    ("RNN", {}, 3, False),
]
CASE = pytest.mark.parametrize(("op", "attributes", "batch", "states"), CASES)


def _network(op: str, attributes: dict[str, Any], batch: int = 1, states: bool = False, **more: Any) -> onnx.ModelProto:
    """A recurrent node with its last states and a product of its results as outputs.

    Args:
        states: first states are inputs, else constants; of LSTM only.
        more: `steps` of the sequence; `keep`, which is added to what input and forget gates of an LSTM, and the update
            gate of a GRU, sum up.
    """
    steps = more.get("steps", _STEPS)
    random = np.random.default_rng(1)
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = _GATES[op] * _HIDDEN
    kept = np.zeros((ways, 2 * rows), np.float32)
    if "keep" in more:
        kept[:, [k for k in range(rows) if k // _HIDDEN in {"LSTM": (0, 2), "GRU": (0,)}[op]]] = more["keep"]
    values = {
        "w": random.normal(size=(ways, rows, _INPUTS)) / np.sqrt(_INPUTS),
        "r": random.normal(size=(ways, rows, _HIDDEN)) / np.sqrt(_HIDDEN) * (0.2 if kept.any() else 1.0),
        "b": random.normal(size=(ways, 2 * rows)) * 0.2 + kept,
        "first": random.normal(size=(ways, batch, _HIDDEN)) * 0.3,
        "out": random.normal(size=(_HIDDEN, 5)) / 4,
        "two": np.array([1]),
    }
    held = [
        numpy_helper.from_array(np.asarray(v, np.int64 if k == "two" else np.float32), k)
        for k, v in values.items()
        if not (states and k == "first")
    ]
    cell = ["first"] if op == "LSTM" else []
    results = ["y", "y_h", "y_c"][: 2 + len(cell)]
    join = helper.make_node("Squeeze", ["y", "two"], ["rows"], "rows")
    if ways == 2:
        join = helper.make_node("ReduceMean", ["y", "two"], ["rows"], "rows", keepdims=0)
    reads = ["x", "w", "r", "b", "", "first", *cell]
    nodes = [
        helper.make_node(op, reads, results, "steps", hidden_size=_HIDDEN, **attributes),
        join,
        helper.make_node("MatMul", ["rows", "out"], ["z"], "product"),
    ]  # fmt: skip
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    given = [info("x", [steps, batch, _INPUTS])] + [info("first", [ways, batch, _HIDDEN])] * states
    outputs = [info("z", [steps, batch, 5]), *(info(name, [ways, batch, _HIDDEN]) for name in results[1:])]
    graph = helper.make_graph(nodes, "recurrent", given, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _samples(model: onnx.ModelProto, count: int = 8) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(2)
    shapes = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
    size = {"x": 1.0, "first": 0.3}
    return [{k: (random.normal(size=v) * size[k]).astype(np.float32) for k, v in shapes.items()} for _ in range(count)]


def _steps(model: onnx.ModelProto) -> list[str]:
    return [layer.name for layer in Network(model).layers if layer.kind is Kind.RECURRENT]


@CASE
def test_split_and_opened(op: str, attributes: dict[str, Any], batch: int, states: bool) -> None:
    """Products of the inputs on their own, and steps as a Scan in floats, give the outputs of the node; what is inside
    the steps is handed out with its shape."""
    model = _network(op, attributes, batch, states)
    prepared = prepare(model)
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    assert len(_steps(prepared)) == ways
    assert sum(node.op_type == "Gemm" for node in prepared.graph.node) >= ways * _GATES[op]
    scans, names = opened(Network(prepared))
    layers = [x for x in Network(prepared).layers if x.kind is Kind.RECURRENT]
    assert names == [value_name(layer, value) for layer in layers for value in values_of(layer)]
    scans.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    for sample in _samples(model, 2):
        wanted, found, inside = run(model, sample), run(prepared, sample), run(scans, sample)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, atol=2e-5)
            np.testing.assert_allclose(inside[name], value, atol=2e-5)
        assert all(inside[name].shape == (_STEPS, batch, _HIDDEN) for name in names)


@CASE
def test_integer_steps(op: str, attributes: dict[str, Any], batch: int, states: bool) -> None:
    """All steps are on the NPU, with onnxruntime's bytes, and near the float network."""
    model = prepare(_network(op, attributes, batch, states))
    samples = _samples(model)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    judge = Judge(model, samples)
    measured = judge.measure(recipe)
    assert measured.decibels.min() > 25
    found = verify_here(write(recipe), samples[0])
    assert found.report.ok and found.npu_macs == found.macs > 0
    in_floats = recipe.with_precision(dict.fromkeys(_steps(model), Precision.FLOAT))
    assert judge.measure(in_floats).decibels.min() > measured.decibels.min()


@pytest.mark.parametrize(("states", "batch", "activation"), [(True, 2, "int8"), (False, 1, "uint8")])
def test_large_cells_have_two_bytes(states: bool, batch: int, activation: str) -> None:
    """Cells that add up without forgetting are as good as small ones; one byte would lose what is added."""
    model = prepare(_network("LSTM", {}, batch, states, steps=24, keep=8.0))
    samples = _samples(model)
    found = ranges.find(model, samples, "minmax")
    (name,) = (name for name in found if name.endswith(":c"))
    assert max(-found[name].low, found[name].high) > 6
    judge, recipe = Judge(model, samples), Recipe(model, found, activation=activation)
    measured = judge.measure(recipe)
    assert measured.decibels.min() > 20 and measured.decibels[2] > 30  # the last one is that of the cells
    written = write(recipe)
    (scan,) = (node for node in written.graph.node if node.op_type == "Scan")
    assert len(scan.input) == 3 + 4
    (body,) = (x.g for x in scan.attribute if x.name == "body")
    assert len(body.node) * recurrent_ops.MAX_STEPS <= MAX_UNROLLED_INTEGERS
    verified = verify_here(written, samples[0])
    assert verified.report.ok and verified.npu_macs == verified.macs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent_integers, "MOST_OF_CELL", 100.0)
        assert judge.measure(recipe).decibels[2] < measured.decibels[2] - 6


def test_steps_in_floats() -> None:
    """Products of the inputs are on the NPU where the steps stay in floats, and the rest is counted by its cause."""
    model = prepare(_network("LSTM", {}))
    samples = _samples(model)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    found = verify_here(write(recipe.with_precision(dict.fromkeys(_steps(model), Precision.FLOAT))), samples[0])
    of_inputs, of_states = 4 * _HIDDEN * _INPUTS * _STEPS, 4 * _HIDDEN * _HIDDEN * _STEPS
    assert found.report.ok and found.npu_macs == of_inputs + _STEPS * _HIDDEN * 5
    assert [cause.macs for cause in found.causes] == [of_states] and "LSTM" in found.causes[0].cause


def test_uint8() -> None:
    """The steps have the type of all activations."""
    model = prepare(_network("GRU", {"linear_before_reset": 1}))
    samples = _samples(model)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"), activation="uint8")
    found = verify_here(write(recipe), samples[0])
    assert found.report.ok and found.npu_macs == found.macs


def test_unfit_nodes_stay() -> None:
    """Nodes with lengths of their own, other activations or too many steps keep their steps."""
    other = _network("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"]})
    assert sum(node.op_type == "Gemm" for node in prepare(other).graph.node) <= 1
    long = prepare(_network("RNN", {}, steps=recurrent_ops.MAX_STEPS + 1))
    assert not _steps(long) and any(node.op_type == "Gemm" for node in long.graph.node)
    for length in (3, _STEPS):
        lengths = _network("LSTM", {})
        lengths.graph.initializer.append(numpy_helper.from_array(np.array([length], np.int32), "lengths"))
        lengths.graph.node[0].input[4] = "lengths"
        assert len(_steps(prepare(lengths))) == (length == _STEPS)


def test_open_sizes() -> None:
    """An open batch or length is that of the samples, which is said; lengths that differ keep the steps in floats."""
    for axis, longer in ((1, 0), (0, 0), (0, 3)):
        model = _network("LSTM", {})
        samples = _samples(model)
        model.graph.node[0].input[5] = model.graph.node[0].input[6] = ""
        for x in [model.graph.input[0], *model.graph.output]:
            x.type.tensor_type.shape.dim[axis].dim_param = "open"
        del model.graph.output[1:]
        given = [{"x": sample["x"]} for sample in samples]
        given[0]["x"] = np.concatenate([given[0]["x"], given[0]["x"][:longer]])
        found = quantize(model, given, check=False)
        assert sum(node.op_type == "Scan" for node in found.model.graph.node) == (not longer)  # type: ignore[union-attr]
        assert any("--shape x=6,1,12; samples of" in line for line in found.lines()) == (axis == 0 and not longer)
        verified = verify_here(found.model, samples[0])  # type: ignore[union-attr]
        assert verified.report.ok and (verified.npu_macs == verified.macs) == (not longer)


def test_qoperator_keeps_the_steps_in_floats() -> None:
    found = quantize(_network("GRU", {}), np.stack([x["x"] for x in _samples(_network("GRU", {}))]), form="qoperator")
    ops = {node.op_type for node in found.model.graph.node}  # type: ignore[union-attr]
    assert {"GRU", "QGemm"} <= ops and "Scan" not in ops and found.verified is not None and found.verified.report.ok


def test_steps_that_miss_the_goal_stay_in_floats() -> None:
    """Steps whose noise is too much are in floats in a candidate, which is taken where that pays."""
    model = prepare(_network("LSTM", {}))
    found = tune(Recipe(model), _samples(model), Accuracy(target=38.0))
    assert any("steps in floats" in candidate.name for candidate in found.candidates)
    best = found.chosen.measured.recipe
    assert all(best.precision[name] is Precision.FLOAT for name in _steps(model))
    assert found.chosen.kept >= 1 and found.fastest.kept == 0


def _behind_products(width: int) -> onnx.ModelProto:
    """An LSTM behind two products and a Relu of some width."""
    model, random = _network("LSTM", {}, steps=20, keep=3.0), np.random.default_rng(5)
    for name, shape in (("in", (_INPUTS, width)), ("back", (width, _INPUTS))):
        value = random.normal(size=shape) / np.sqrt(shape[0])
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    before = [("MatMul", ["x", "in"]), ("Relu", ["wide"]), ("MatMul", ["relu", "back"])]
    names = ["wide", "relu", "front"]
    nodes = [helper.make_node(op, reads, [made], made) for made, (op, reads) in zip(names, before)]
    model.graph.node[0].input[0] = "front"
    nodes += model.graph.node
    del model.graph.node[:], model.graph.output[1:]
    model.graph.node.extend(nodes)
    return model


def test_the_plain_network_is_enough() -> None:
    """The plain quantiser's network is taken at once if it leaves little in floats and has the goal."""
    model = _behind_products(2048)
    found = quantize(model, np.stack([x["x"] for x in _samples(model)]), check=False).decision  # type: ignore[union-attr]
    assert found is not None and [x.name for x in found.candidates] == ["plain", "all in 8 bits"]
    assert found.chosen is found.candidates[0] and 0 < found.chosen.share < 0.1 and found.fastest.kept == 0
    assert any(node.op_type == "LSTM" for node in write(found.chosen.measured.recipe).graph.node)


def test_no_worse_than_with_recurrent_layers_in_floats() -> None:
    """The plain quantiser leaves an LSTM behind large products in floats; where that has more dB, the steps stay so."""
    model = _behind_products(64)
    samples = _samples(model)
    prepared = prepare(model)
    found = tune(Recipe(prepared), samples, Accuracy())
    by_name = {candidate.name: candidate for candidate in found.candidates}
    assert by_name["all in 8 bits"].decibels < found.floor <= by_name["plain"].decibels
    assert found.chosen.decibels >= found.floor and found.fastest.kept == 0 and 0 < found.chosen.share < 0.7
    anything = tune(Recipe(prepared), samples, Accuracy(target=None))
    assert all(candidate.kept == 0 for candidate in anything.candidates)


def test_equal_steps_do_not_add_up_errors() -> None:
    """Gates that are the same in each step are rounded alike in each: with i g in one byte 29 dB."""
    model = prepare(_network("LSTM", {}, steps=40, keep=3.0))
    given = [{name: np.broadcast_to(x[:1], x.shape).copy() for name, x in s.items()} for s in _samples(model)]
    found = ranges.find(model, given, "minmax")
    assert Judge(model, given).measure(Recipe(model, found)).decibels.min() > 32


def test_a_length_of_too_many_steps_stays_open() -> None:
    model, steps = _network("RNN", {}), recurrent_ops.MAX_STEPS + 1
    for info in [model.graph.input[0], *model.graph.output]:
        info.type.tensor_type.shape.dim[0].dim_param = "open"
    del model.graph.output[1:]
    x = np.random.default_rng(2).normal(size=(4, steps, 1, _INPUTS)).astype(np.float32)
    found = quantize(model, x, check=False)
    assert not any("open length" in line for line in found.lines())
    assert any(node.op_type == "RNN" for node in found.model.graph.node)  # type: ignore[union-attr]


@pytest.mark.parametrize("late", [0, 1])
def test_states_that_are_kept_for_long_have_two_bytes(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepare(_network("GRU", {"linear_before_reset": late}, steps=40, keep=3.0))
    samples = _samples(model)
    recipe, judge = Recipe(model, ranges.find(model, samples, "minmax")), Judge(model, samples)
    two = judge.measure(recipe).decibels
    assert verify_here(write(recipe), samples[0]).report.ok
    monkeypatch.setattr(recurrent_integers, "_LONG", 0.9999)
    assert np.all(two > judge.measure(recipe).decibels + 1.5)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_of_many_steps_the_first_are_compiled(direction: str) -> None:
    model = _network("GRU", {"direction": direction}, steps=20)
    random = np.random.default_rng(3)
    samples = [{"x": random.normal(size=(20, 1, _INPUTS)).astype(np.float32)} for _ in range(4)]
    found = quantize(model, samples, held_back=0)
    assert found.verified is not None and found.verified.report.ok  # type: ignore[union-attr]
    assert found.verified.steps == 20 and "(of 20 steps the first 8)" in str(found.verified)  # type: ignore[union-attr]
    assert found.verified.to_dict()["first_steps"] == 8  # type: ignore[union-attr]

    few = first_steps.first_steps(found.model, {x.name: 20 for x in first_steps.scans_of(found.model)})  # type: ignore
    short, whole = run(few, samples[0])["z"], run(found.model, samples[0])["z"]  # type: ignore[union-attr]
    assert np.array_equal(short[8:], np.broadcast_to(short[7:8], (12, 1, 5)))
    if direction == "forward":
        assert np.array_equal(short[:8], whole[:8]) and not np.array_equal(short[8:], whole[8:])
    else:  # which begins at the eighth row
        cut = {"x": np.concatenate([samples[0]["x"][:8], np.zeros((12, 1, _INPUTS), np.float32)])}
        assert short.shape == whole.shape and np.array_equal(run(few, cut)["z"], short)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_gates_far_beyond_their_limits_keep_their_steps(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of +-40 and more: what lies beyond the limit of a gate takes no steps from what decides it."""
    model = prepare(_network(op, {}))
    samples = [{name: 10 * value for name, value in sample.items()} for sample in _samples(model, 16)]
    narrow, judge = ranges.find(model, samples, "minmax"), Judge(model, samples)  # type: ignore[arg-type]
    monkeypatch.setattr(ranges, "saturate_gates", lambda network, found: None)
    wide = ranges.find(model, samples, "minmax")  # type: ignore[arg-type]
    (layer,) = (x for x in Network(model).layers if x.kind is Kind.RECURRENT)
    assert all(wide[name].high > 20 > 12 > narrow[name].high for name in layer.inputs[: _GATES[op]])
    noise = [judge.noise(Recipe(model, found)).max() for found in (narrow, wide)]
    assert noise[0] < noise[1] / 2
