"""`tilewright.simulator.attribution`: every cycle has one cause, the books balance, the causes are the real ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import tilewright as tw
from tests.common.paths import ROOT
from tilewright import zoo
from tilewright.compiler.npu.coding.stream import encode_stream
from tilewright.compiler.npu.coding.table import make_table
from tilewright.isa.codes import SLOTS, CodeMode
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.instructions import Memory, Source
from tilewright.isa.program import Layer, Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming, gemm_signal
from tilewright.simulator import attribution
from tilewright.simulator.attribution import LOSSES, LayerLosses, attribute, bounds_of, fused_layers, fused_row
from tilewright.simulator.blame import segments
from tilewright.simulator.bound import bound_cycles
from tilewright.simulator.cycle import CycleDevice, Trace

TINY = PRESETS["tiny"].with_(vector_passes=1)
ONE_QUEUE = TINY.with_(name="one_queue", vector_queue=0)
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def trace_of(ops: list[Op], config: NpuConfig = TINY, data_bytes: bytes = b"", **timing: int) -> Trace:
    device = CycleDevice(config, MemoryTiming(**timing), functional=False)
    image = to_bytes([*ops, op("END")])
    program, data = device.allocate(len(image)), device.allocate(1 << 16)
    device.write(program, image)
    device.write(data, data_bytes)
    regions = [
        Region(program, len(image), read=True),
        Region(data, 1 << 16, read=True),
        Region(data, 1 << 16, read=True, write=True),
    ]
    device.run(regions, 0, 0, len(ops) + 1, trace=True)
    assert device.trace is not None
    return device.trace


def causes(ops: list[Op], trace: Trace, config: NpuConfig = TINY) -> dict[str, int]:
    """Cycles per cause; checks that the segments hold every cycle once."""
    found = sorted(segments([*ops, op("END")], trace, config))
    at = 1
    for first, last, _, pc in found:
        assert first == at <= last and 0 <= pc <= len(ops)
        at = last + 1
    assert at == trace.cycles + 1
    return {c: sum(b - a + 1 for a, b, cause, _ in found if cause == c) for c in attribution.CAUSES}


def load(rows: int, target: Memory, signal: int = 0, wait: int = 0) -> Op:
    return op("LOAD", region=1, offset=0, target=target, row=0, count=rows, signal0=signal, wait0=wait)


def test_waiting_for_a_load() -> None:
    ops = [
        load(512, Memory.ACT, signal=1),
        op("GEMM_LOOP", level=0, count=100, act_stride=1, acc_stride=1),
        op("GEMM", act=0, wgt=0, acc=0, wait0=1),
    ]
    trace = trace_of(ops)
    found = causes(ops, trace)
    assert found["gemm"] == 100
    assert abs(found["load"] - 512) <= 2  # a beat of the 32-bit bus per row
    assert found["memory"] >= 60  # the latency of the first beat
    assert found["fetch"] >= 60  # that of the program
    assert found["pipeline"] <= 11 + gemm_signal(TINY)  # to LOAD, from its signal to GEMM, to the end of the run
    assert found["vector"] == found["store"] == found["window"] == 0


@pytest.mark.medium
def test_waiting_for_coded_weights() -> None:
    """Loading takes a cycle for each slot of the table and each round; what is left is the memory's."""
    config = TINY.with_(name="coded", weight_codes=8)
    weights = np.resize(np.arange(-3, 4, dtype=np.int8), (400, 4, 4))
    table = make_table(np.bincount(weights.reshape(-1).view(np.uint8), minlength=256))
    stream = encode_stream(config, [table, weights])
    beats = stream.beats
    ops = [
        op("LOAD_CODED", region=1, offset=0, mode=CodeMode.TABLE, count=1, beats=beats[0]),
        op("LOAD_CODED", region=1, offset=4 * beats[0], mode=CodeMode.WEIGHTS, row=0, count=400, beats=beats[1],
           signal0=1),
        op("GEMM", act=0, wgt=0, acc=0, wait0=1),
    ]  # fmt: skip
    trace = trace_of(ops, config, stream.data)
    found = causes(ops, trace, config)
    assert SLOTS + 800 <= found["load"] <= SLOTS + 800 + 40
    assert found["memory"] >= 60 and found["gemm"] == 1


def test_the_cause_is_found_behind_another_engine() -> None:
    """GEMM waits for VECTOR, which waits for LOAD: loading is the cause."""
    ops = [
        load(512, Memory.ACT, signal=1),
        op("VECTOR_LOOP", level=0, count=40, a_stride=1, dst_stride=1),
        op("VECTOR", source=Source.ACT, a=0, dst=600, wait0=1, signal0=2),
        op("GEMM", act=600, wgt=0, acc=0, wait0=2),
    ]
    found = causes(ops, trace_of(ops))
    assert abs(found["load"] - 512) <= 2 and found["vector"] == 40 and found["gemm"] == 1


def test_a_store_at_the_end_and_one_that_holds_back() -> None:
    ops = [
        op("GEMM_LOOP", level=0, count=50, act_stride=1, acc_stride=1),
        op("GEMM", act=0, wgt=0, acc=0, signal0=1),
        op("STORE", region=2, offset=0, row=0, count=300, wait0=1, signal0=2),
        op("GEMM", act=0, wgt=0, acc=0, wait0=2),
        op("STORE", region=2, offset=0, row=0, count=100),
    ]
    found = causes(ops, trace_of(ops))
    assert found["gemm"] == 100 and 300 <= found["store"] <= 500


def test_a_full_queue_is_its_engines_fault() -> None:
    """LOAD's queue is full, so FETCH cannot reach the GEMM behind: loading is the cause, not fetching."""
    ops = [*(load(200, Memory.ACT) for _ in range(TINY.queue_depth + 12)), op("GEMM", act=0, wgt=0, acc=0)]
    trace = trace_of(ops)
    causes(ops, trace)
    found = segments([*ops, op("END")], trace, TINY)
    full = trace.dispatched[TINY.queue_depth + 5], trace.dispatched[-2]  # LOAD's queue is full between these cycles
    inside = [cause for first, last, cause, _ in found if first > full[0] and last < full[1]]
    assert inside and set(inside) <= {"load", "pipeline"}
    assert sum(last - first for first, last, cause, _ in found if cause == "load" and last <= full[1]) > 500


def test_an_instruction_behind_another_engines_in_one_queue() -> None:
    """GEMM stands behind a VECTOR that waits for LOAD: loading is the cause."""
    ops = [
        load(512, Memory.ACT, signal=1),
        op("VECTOR_LOOP", level=0, count=40, a_stride=1, dst_stride=1),
        op("VECTOR", source=Source.ACT, a=0, dst=600, wait0=1),
        op("GEMM_LOOP", level=0, count=90, act_stride=1, acc_stride=1),
        op("GEMM", act=2048, wgt=0, acc=0),
    ]
    apart, together = trace_of(ops), trace_of(ops, ONE_QUEUE)
    assert apart.started[4] < apart.started[2] and together.started[4] == together.started[2] + 3
    found = causes(ops, together, ONE_QUEUE)
    assert found["gemm"] == 90 and abs(found["load"] - 512) <= 2 and found["vector"] == 0


def test_a_program_without_array_and_one_without_work() -> None:
    ops = [load(64, Memory.ACT, signal=1), op("STORE", region=2, offset=0, row=0, count=64, wait0=1)]
    found = causes(ops, trace_of(ops))
    assert found["load"] > 60 and found["store"] > 64 and found["gemm"] == 0
    trace = trace_of([])
    assert causes([], trace)["fetch"] == trace.cycles


@cache
def digits(config: str | NpuConfig) -> Program:
    """Compiled once for memories of any speed."""
    return tw.compile_program(DIGITS, config)


def run(program: Program, memory: MemoryTiming = DEFAULT_MEMORY) -> tuple[list[LayerLosses], int]:
    with tw.Device("cycle", timing=memory, functional=False) as runner:
        runner.run(program, tw.random_inputs(program), trace=True)
        device = runner.load(program).device
        assert isinstance(device, CycleDevice) and runner.counters is not None and runner.counters.cycles
        for trace in device.traces:
            found = sorted(segments(program.ops(), trace, program.config))
            assert sum(b - a + 1 for a, b, _, _ in found) == trace.cycles
        rows = attribute(program.ops(), program.layers, device.traces, program.config, program.constants, memory)
        return rows, runner.counters.cycles


@pytest.mark.medium
@pytest.mark.parametrize("config", [*PRESETS, ONE_QUEUE], ids=str)
@pytest.mark.parametrize(
    "memory",
    [
        DEFAULT_MEMORY,
        MemoryTiming(read_latency=300, read_interval=3, write_interval=2),
        MemoryTiming(read_latency=300, read_interval=2.6),
        MemoryTiming(write_interval=40),
    ],
    ids=["", "slow", "slow reads", "slow writes"],
)
def test_the_books_of_a_network_balance(config: str | NpuConfig, memory: MemoryTiming) -> None:
    program = digits(config)
    rows, cycles = run(program, memory)
    assert sum(row.cycles for row in rows) == cycles
    assert sum(row.bound for row in rows) == bound_cycles(program.layers, program.config, memory) <= cycles
    for row in rows:
        assert set(row.losses) == set(LOSSES)
        assert sum(row.losses.values()) == row.cycles - row.bound
        assert all(n >= 0 for key, n in row.losses.items() if key != "overlap")
        assert sum(row.spent.values()) == row.cycles


@pytest.mark.network
@pytest.mark.parametrize(
    "name", ["resnet8", "ds_cnn", "autoencoder", pytest.param("mobilenet_v2", marks=pytest.mark.long)]
)
def test_the_books_of_fused_and_depthwise_layers(name: str) -> None:
    program = tw.compile_program(zoo.build_quantized(name, **zoo.ZOO[name].small), "base")
    rows, cycles = run(program)
    assert sum(row.cycles for row in rows) == cycles
    assert sum(row.layer.macs for row in rows) == program.npu_macs
    for row in rows:
        assert sum(row.losses.values()) == row.cycles - row.bound
        assert row.losses["padding"] >= 0 and row.losses["window"] >= 0
    assert any(row.losses["window"] for row in rows) == (name in ("ds_cnn", "mobilenet_v2"))


def test_fused_layers_are_one_row() -> None:
    layers = [
        Layer("in", "Quantize", "cpu"),
        Layer("a", "QConv", "npu", 0, 10, 100, 1, 2, 3),
        Layer("b", "QConv", "npu", 10, 0, 50, 4, 5, 6),
        Layer("c", "QConv", "npu", 10, 5, 7),
    ]
    groups = fused_layers(layers)
    assert [[layer.name for layer in group] for group in groups] == [["a", "b"], ["c"]]
    row = fused_row(groups[0])
    assert (row.name, row.macs, row.read_bytes, row.write_bytes, row.minimum_bytes) == ("a + b", 150, 5, 7, 9)
    assert (row.first, row.count) == (0, 10)


def test_the_bound_of_a_row_knows_what_waits_inside_of_it() -> None:
    """The last layer reads more than scratchpads hold, and can begin only behind all others, also if it is fused."""
    config = PRESETS["base"]
    layers = [Layer(name, "QConv", "npu", minimum_steps=50_000, minimum_bytes=1000) for name in "ab"]
    layers.append(Layer("c", "QMatMul", "npu", minimum_steps=100, minimum_bytes=2_000_000, after_all=True))
    whole = bound_cycles(layers, config)
    assert whole == 100_000 + (2_000_000 - config.scratchpad_bytes) // config.bus_bytes
    for groups in ([layers[:1], layers[1:]], [layers], [[layer] for layer in layers]):
        assert sum(bounds_of(groups, config, DEFAULT_MEMORY)) == whole
