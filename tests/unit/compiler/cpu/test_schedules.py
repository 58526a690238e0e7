"""Schedules as data: whatever they say the results stay; what is measured is kept and used; threads change nothing."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.common.onnx_models import model_of
from tests.unit.compiler.cpu.support import execute, run_reference
from tilewright.compiler.cpu import Target, compile_segment, findings, load
from tilewright.compiler.cpu.schedule import GemmSchedule, LoopSchedule, Schedules, fits
from tilewright.compiler.cpu.tune import changes, tune
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.onnx import import_onnx

RNG = np.random.default_rng(3)


def network() -> tuple[Graph, dict[str, np.ndarray], np.ndarray]:
    """A convolution, a transposition, a product, rows and a reduction; with inputs and onnxruntime's result."""
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        n("Relu", ["c"], ["r"]),
        n("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        n("MatMul", ["t", "m"], ["p"]),
        n("Softmax", ["p"], ["s"], axis=-1),
        n("ReduceMean", ["s", "axes"], ["y"], keepdims=0),
    ]
    constants = {
        "w": RNG.standard_normal((40, 20, 3, 3)).astype(np.float32),
        "m": RNG.standard_normal((40, 70)).astype(np.float32),
        "axes": np.array([2], np.int64),
    }
    feeds = {"x": RNG.standard_normal((2, 20, 18, 21)).astype(np.float32)}
    names = ["c", "r", "t", "p", "s", "y"]
    model = model_of(nodes, feeds, ["y"], constants)
    values = dict(zip(names, run_reference(model_of(nodes, feeds, names, constants), feeds, names)))
    return import_onnx(model), feeds, values["y"]


def run(graph: Graph, feeds: dict[str, np.ndarray], schedules: Schedules) -> tuple[np.ndarray, list[str]]:
    segment = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s", schedules=schedules)
    return execute(segment, graph, feeds)[0], segment.description


@pytest.mark.slow
def test_every_candidate_computes_the_same() -> None:
    graph, feeds, want = network()
    asked = Schedules()
    run(graph, feeds, asked)
    kinds = {type(s) for s in asked.requested.values()}
    assert kinds == {GemmSchedule, LoopSchedule}
    rounds = 0
    for signature, default in asked.requested.items():
        for candidate in list(default.candidates(Target.host()))[:: 2 if isinstance(default, GemmSchedule) else 3]:
            got, lines = run(graph, feeds, Schedules({signature: changes(candidate, default)}))
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-7, err_msg=f"{signature}: {candidate}")
            rounds += any(str(candidate) in line for line in lines)
    assert rounds > 10  # they are printed, so they were used


def test_defaults_fit_the_registers() -> None:
    for registers, bits in ((32, 512), (16, 256), (32, 128)):
        target = Target(triple="x86_64-unknown-linux-gnu", vector_registers=registers, vector_bits=bits)
        default = GemmSchedule.default(target)
        for c in (default, *default.candidates(target)):
            assert c.rows * c.vectors + c.vectors + 1 <= registers


def test_what_does_not_fit_is_not_used() -> None:
    default = LoopSchedule()
    assert fits({"unroll": 4, "vectorise": False}, default)
    for wrong in ({"unroll": 0}, {"unroll": 2.0}, {"unroll": True}, {"vectorise": 1}, {"rows": 4}, {"unroll": 1 << 20}):
        assert not fits(wrong, default)
        assert Schedules({"k": wrong}).get("k", default) == default


def finding(kernel: str, target: Target, **schedule: object) -> findings.Finding:
    return findings.Finding(findings.processor(target), kernel, schedule, 2.0, 1.0)


@pytest.mark.medium
def test_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later compiles of the same kernels on the same processor use what was found; damaged lines do no harm."""
    file = tmp_path / "log.jsonl"
    monkeypatch.setenv(findings.ENVIRONMENT, str(file))
    target = Target.host()
    assert findings.found(target) == {}
    before = findings.digest(target)
    graph, feeds, want = network()
    asked = Schedules()
    run(graph, feeds, asked)
    signature = next(s for s, d in asked.requested.items() if isinstance(d, GemmSchedule))
    other = replace(target, cpu="another")
    findings.add([finding(signature, target, rows=5), finding(signature, target, rows=6)], file)
    with file.open("a") as stream:
        stream.write('{"version": 1, "processor"\n[]\n{"version": 99}\n')
    findings.add([finding(signature, other, rows=7)], file)
    assert findings.found(target) == {signature: {"rows": 6}}
    assert findings.found(other) == {signature: {"rows": 7}}
    assert findings.digest(target) != before
    segment = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s")
    assert any("tile 6 x" in line for line in segment.description)
    np.testing.assert_allclose(execute(segment, graph, feeds)[0], want, rtol=1e-4, atol=1e-7)
    monkeypatch.setenv(findings.ENVIRONMENT, "off")
    assert findings.found(target) == {} and findings.path() is None


@pytest.mark.slow
def test_tuning_finds_what_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurement finds a good schedule where the default is bad, and the log line says so."""
    monkeypatch.setattr(GemmSchedule, "default", staticmethod(lambda target: GemmSchedule(rows=1, vectors=1)))
    n = helper.make_node
    constants = {"m": RNG.standard_normal((256, 256)).astype(np.float32)}
    feeds = {"x": RNG.standard_normal((200, 256)).astype(np.float32)}
    nodes = [n("MatMul", ["x", "m"], ["y"])]
    graph = import_onnx(model_of(nodes, feeds, ["y"], constants))
    tensors = set(graph.tensors)
    ticks = itertools.count(0, 0.05)  # a clock of steps, so that a busy machine searches as far as any
    outcome = tune(graph, Target.host(), 20.0, clock=lambda: next(ticks))
    assert set(graph.tensors) == tensors
    (kernel,) = outcome.kernels
    assert kernel.signature.startswith("float32 product with a constant m200 k256 n256")
    assert kernel.best.rows > 1 and kernel.seconds < 0.7 * kernel.default_seconds
    assert kernel.finding(Target.host()).schedule == kernel.changes and fits(kernel.changes, kernel.default)
    assert outcome.to_dict()["kernels"][0]["changes"] == kernel.changes
    got, _ = run(graph, feeds, Schedules({kernel.signature: kernel.changes}))
    np.testing.assert_allclose(got, feeds["x"] @ constants["m"], rtol=1e-3, atol=1e-3)


def test_small_budget_ends() -> None:
    graph, _, _ = network()
    ticks = itertools.count()
    outcome = tune(graph, Target.host(), 0.001, clock=lambda: next(ticks))
    assert outcome.kernels == [] and outcome.left >= 5


@pytest.mark.medium
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    graph, feeds, _ = network()
    want, _ = run(graph, feeds, Schedules())
    segment = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s", threads=threads)
    kernel = load(segment.object_code, "s", threads)
    constants = [np.ascontiguousarray(graph.tensor(n).data) for n in segment.constants]
    for _ in range(3):
        y = np.zeros(want.shape, np.float32)
        memory = np.full(segment.workspace_bytes + 64, 0xA5, np.uint8)
        arrays = [feeds["x"], *constants, y]
        kernel([a.ctypes.data for a in arrays], memory.ctypes.data + -memory.ctypes.data % 64)
        np.testing.assert_array_equal(y, want)


@pytest.mark.medium
def test_memory_is_reused() -> None:
    graph, _, _ = network()
    memory = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s").memory
    assert memory.live <= memory.arena < memory.separate


def test_schedules_are_plain_data() -> None:
    for schedule in (LoopSchedule(unroll=2), GemmSchedule(rows=4, in_place=False)):
        assert type(schedule)(**json.loads(json.dumps(asdict(schedule)))) == schedule
        assert str(schedule)


def chain(last: str) -> tuple[Graph, dict[str, np.ndarray], np.ndarray]:
    """Cumulative sums, which are kernels of their own, with elementwise ops and rows between them."""
    n = helper.make_node
    nodes = [
        n("CumSum", ["x", "axis"], ["a"]),
        n("Tanh", ["a"], ["b"]),
        n("CumSum", ["b", "axis"], ["c"]),
        n("Softmax", ["c"], ["d"], axis=-1),
        n("CumSum", ["d", "axis"], ["e"]),
        n("Add", ["e", last], ["f"]),
        n("CumSum", ["f", "axis"], ["y"]),
    ]
    constants = {"axis": np.array(0, np.int64)}
    feeds = {"x": RNG.standard_normal((30, 50)).astype(np.float32)}
    names = ["a", "b", "c", "d", "e", "f", "y"]
    values = dict(zip(names, run_reference(model_of(nodes, feeds, names, constants), feeds, names)))
    graph = import_onnx(model_of(nodes, feeds, ["y"], constants))
    return graph, feeds, values["y"]


@pytest.mark.parametrize(("last", "tensors"), [("x", 2), ("a", 3), ("e", 2)])
def test_results_take_the_memory_of_operands(last: str, tensors: int) -> None:
    """Results take the memory of operands that are not read again; the arena is as small as the tensors in use at one
    time."""
    graph, feeds, want = chain(last)
    segment = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s")
    np.testing.assert_allclose(execute(segment, graph, feeds)[0], want, rtol=1e-4, atol=1e-5)
    assert segment.memory.live <= tensors * 30 * 50 * 4 < segment.memory.separate
