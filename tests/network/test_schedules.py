"""Schedules: every effort gives the same bytes, layers too big for the NPU go to the CPU, a second compile is found."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.network.layer_cases import make
from tests.reference import quantized_ops
from tilewright import zoo
from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.npu.schedule.search import MORE, policies
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.timing import MemoryTiming
from tilewright.runtime.cost import measure, run_npu_steps
from tilewright.runtime.executor import Executor
from tilewright.runtime.inputs import random_inputs
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from tilewright.zoo import build_quantized

BASE = PRESETS["base"]


def wide_product(k: int, n: int) -> Graph:
    graph = Graph("wide")
    quant = Quant.of(np.float32(0.05), 3)
    for name, size in (("x", k), ("y", n)):
        graph.add(Tensor(name, (1, size), np.dtype(np.int8), None, quant))
    data = np.random.default_rng(0).integers(-20, 20, (k, n)).astype(np.int8)
    w = graph.constant("w", data, Quant.of(np.float32(0.001)))
    graph.nodes.append(Node.of(QMatMul(), ["x", w], ["y"], "y"))
    graph.inputs, graph.outputs = ["x"], ["y"]
    return graph


def test_wide_product_is_cut() -> None:
    graph = wide_product(20000, 8)
    x = {"x": np.random.default_rng(1).integers(-128, 128, (1, 20000)).astype(np.int8)}
    expected = quantized_ops.run(graph, x)["y"]
    program = compile_graph(wide_product(20000, 8), PRESETS["tiny"])
    assert [layer.where for layer in program.layers] == ["npu"]
    assert np.array_equal(Executor(program, FunctionalDevice(PRESETS["tiny"])).run(x).outputs["y"], expected)


def test_layers_that_fit_nowhere_run_on_the_cpu() -> None:
    cramped = PRESETS["tiny"].with_(wgt_tiles=4, act_rows=64, prm_rows=2)
    reasons = []
    for seed in range(6):
        graph, inputs = make("conv", seed)
        expected = quantized_ops.run(graph, inputs)
        outputs = list(graph.outputs)
        program = compile_graph(graph, cramped)
        reasons += [note for note in program.notes if "does not fit" in note]
        got = Executor(program, FunctionalDevice(cramped)).run(inputs).outputs
        assert all(np.array_equal(got[name], expected[name]) for name in outputs)
    assert reasons and "does not fit the scratchpads" in reasons[0]


@pytest.mark.parametrize("effort", [0, 1, 2])
def test_efforts_agree(effort: int) -> None:
    graph, inputs = make("chain", 4242)
    expected = quantized_ops.run(graph, inputs)
    program = compile_graph(make("chain", 4242)[0], BASE, CompileOptions(effort=effort), measure=measure)
    got = Executor(program, FunctionalDevice(BASE)).run(inputs).outputs
    assert all(np.array_equal(got[name], expected[name]) for name in graph.outputs)


#: A whole network whose layers are fused, beside small ones.
MOBILENET = pytest.param("mobilenet_v2", {"alpha": 0.35, "size": 96, "classes": 10}, marks=pytest.mark.long)


@pytest.mark.parametrize(("network", "parameters"), [("segmentation", {"size": 32, "width": 8}), MOBILENET])
def test_schedules_are_made_for_a_memory(network: str, parameters: dict[str, object]) -> None:
    """A network that waits for a slow memory takes fewer cycles there if the compiler knows; its values stay."""
    model = build_quantized(network, **parameters)  # type: ignore[arg-type]
    slow = MemoryTiming(read_latency=16, read_interval=2.5, write_interval=2.5)
    plain, told = (tw.compile(model, "wide", memory=memory, cache=False) for memory in (None, slow))
    devices = [CycleDevice(program.config, slow, functional=False) for program in (plain, told)]
    before, after = (run_npu_steps(program, device).cycles for program, device in zip((plain, told), devices))
    assert before and after and after < 0.97 * before
    inputs = random_inputs(plain)
    one, other = (Executor(program, FunctionalDevice(program.config)).run(inputs).outputs for program in (plain, told))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("network", "parameters"), [("segmentation", {"size": 32, "width": 8}), MOBILENET])
def test_fusion_saves_cycles_and_traffic(network: str, parameters: dict[str, object]) -> None:
    model = build_quantized(network, **parameters)  # type: ignore[arg-type]
    results = []
    for effort in (0, 1, 2):
        program = tw.compile(model, effort=effort, cache=False)
        executor = Executor(program, CycleDevice(BASE))
        results.append(executor.run(tw.random_inputs(program)))
    cycles = [r.counters.cycles for r in results]
    assert cycles[1] < 0.97 * cycles[0] and cycles[2] <= cycles[1]
    if network == "mobilenet_v2":  # the other's layers are small enough to stay in ACT without
        assert results[1].counters.bytes_read < results[0].counters.bytes_read
    for result in results[1:]:
        for name, value in results[0].outputs.items():
            assert np.array_equal(result.outputs[name], value)


def test_the_search_grows_with_effort() -> None:
    assert 1 == len(policies(0)) < len(policies(1)) and list(MORE) == sorted(MORE)
    assert MORE[1] == 0 < MORE[2] < MORE[3]


def test_second_compile_is_found(empty_cache, monkeypatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_PROGRAM_CACHE", raising=False)
    model = build_quantized("autoencoder", features=64, hidden=32).SerializeToString()
    first = tw.compile(model)
    stored = list((empty_cache / "programs").glob("*.twp"))
    assert len(stored) == 1
    second = tw.compile(model)
    assert second.content_hash() == first.content_hash() and second.compile_seconds < first.compile_seconds
    assert tw.compile(model, config="small").config.name == "small"  # another configuration is another program
    stored[0].write_bytes(stored[0].read_bytes()[:-40])  # a damaged one is compiled again
    assert tw.compile(model).content_hash() == first.content_hash()


def test_unknown_effort_is_refused() -> None:
    with pytest.raises(tw.TilewrightError, match=r"effort must be 0\.\.3, not 7"):
        tw.compile(build_quantized("resnet8"), effort=7, cache=False)


@pytest.mark.parametrize(
    ("network", "parameters"),
    [("resnet8", {"size": 8}), pytest.param("mobilenet_v2", zoo.ZOO["mobilenet_v2"].small, marks=pytest.mark.long)],
)
def test_uint8_weights_with_a_zero_point(network: str, parameters: dict[str, object]) -> None:
    """Few of them leave int8: only their tiles and blocks of channels are computed twice, and the bytes are right."""
    cycles = []
    for weights in ("int8", "uint8"):
        model = build_quantized(network, weights=weights, activation="uint8", per_channel=False, **parameters)
        program = tw.compile(model, BASE, cache=False)
        report = tw.check(model, config=BASE, program=program)
        assert report.ok, report.summary()
        with tw.Device("cycle", functional=False) as device:
            device.run(program, tw.random_inputs(program))
            assert device.counters is not None and device.counters.cycles is not None
            cycles.append(device.counters.cycles)
    assert cycles[1] <= 1.15 * cycles[0]
