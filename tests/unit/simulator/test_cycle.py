"""The cycle-level simulator as a device: bytes, clock, errors, traces, timelines. Against the RTL: tests/cosim."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.isa.config import PRESETS, preset
from tilewright.isa.device import Device, DeviceError, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine, Source
from tilewright.isa.program import Layer
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice, Trace
from tilewright.simulator.functional import FunctionalDevice
from tilewright.simulator.timeline import events, layer_cycles, write_timeline
from verification.programs.generator import generate

TINY = preset("tiny")
SIZE = 1 << 14
PROGRAM = [
    op("LOAD", region=1, row=10, count=16, signal0=1),
    op("VECTOR_LOOP", level=0, count=16, a_stride=1, dst_stride=1),
    op("VECTOR", source=Source.ACT, a=10, dst=50, wait0=1, signal0=2),
    op("STORE", region=1, offset=4096, row=50, count=16, wait0=2),
]


def run(device: Device, ops: list[Op], **options: int) -> int | None:
    device.free_all()
    base = device.allocate(2 * SIZE)
    device.write(base, to_bytes([*ops, op("END")]))
    regions = [Region(base, SIZE, read=True), Region(base + SIZE, SIZE, read=True, write=True)]
    return device.run(regions, 0, 0, len(ops) + 1, **options).cycles


def fails(ops: list[Op], **options: int) -> DeviceError:
    with pytest.raises(DeviceError) as info:
        run(CycleDevice(TINY), ops, **options)
    return info.value


def test_is_a_device() -> None:
    device = CycleDevice(TINY)
    assert isinstance(device, Device) and device.name == "cycle"


@pytest.mark.medium
@pytest.mark.parametrize("name", PRESETS)
def test_memory_images_are_those_of_the_functional_simulator(name: str) -> None:
    cycle, functional = CycleDevice(preset(name)), FunctionalDevice(preset(name))
    for seed in range(4):
        program = generate(seed, preset(name))
        assert np.array_equal(program.run(cycle), program.run(functional))


def test_the_clock_needs_no_data() -> None:
    whole, clock = CycleDevice(TINY), CycleDevice(TINY, functional=False)
    assert run(whole, PROGRAM) == run(clock, PROGRAM)


def test_slower_memory_takes_longer() -> None:
    times = [run(CycleDevice(TINY, MemoryTiming(read_latency=n)), PROGRAM) for n in (1, 10, 100, 1000)]
    assert times == sorted(times) and len(set(times)) == 4
    # FETCH waits for its first burst, LOAD for its only one.
    assert times[3] - times[2] == 2 * 900


def test_a_loop_takes_a_cycle_per_step() -> None:
    ops = lambda n: [op("GEMM_LOOP", level=0, count=n), op("GEMM", reduce=1)]
    short, long = (run(CycleDevice(TINY), ops(n)) for n in (100, 1100))
    assert short is not None and long == short + 1000


def test_errors() -> None:
    error = fails([op("LOAD_SYNC", wait0=3)])
    assert (error.code, error.engine, error.pc) == (ErrorCode.WATCHDOG, Engine.LOAD, 0) and "semaphore 3" in str(error)
    error = fails([op("LOAD_SYNC", wait0=3)], watchdog=1000)
    assert (error.code, error.address) == (ErrorCode.WATCHDOG, 3)
    assert fails(PROGRAM, timeout=50).code == ErrorCode.TIMEOUT
    error = fails([*PROGRAM, op("GEMM", act=4096)])
    assert (error.code, error.pc, error.address) == (ErrorCode.SCRATCHPAD_RANGE, 4, 4096) and "ACT row 4096" in str(
        error
    )
    error = fails([op("STORE", region=0, count=1)])
    assert error.code == ErrorCode.WINDOW and "\n" not in str(error)
    assert fails([op("LOAD_SYNC", signal0=9)] * 256).code == ErrorCode.SEMAPHORE_OVERFLOW


def test_a_timeout_ends_the_data_too() -> None:
    """The functional part, which finds the words for the error, stops as early as the clock."""
    for engine in ("GEMM", "VECTOR"):
        counts = (65535, 65535, 200)  # hours of the functional simulator, and below its own limit
        loops = [op(f"{engine}_LOOP", level=level, count=count) for level, count in enumerate(counts)]
        assert fails([*loops, op(engine)], timeout=3000).code == ErrorCode.TIMEOUT


def test_a_timeout_of_just_enough_cycles() -> None:
    cycles = run(CycleDevice(TINY), PROGRAM)
    assert cycles is not None and run(CycleDevice(TINY), PROGRAM, timeout=cycles) == cycles
    assert fails(PROGRAM, timeout=cycles - 1).code == ErrorCode.TIMEOUT


@pytest.mark.parametrize("latency", [20, 300])
def test_a_burst_that_is_asked_for_is_progress(latency: int) -> None:
    """Only the request of a burst is progress until its first beat, `latency` cycles later (docs/machine.md)."""
    device, ops = CycleDevice(TINY, MemoryTiming(read_latency=latency)), [op("LOAD", region=1, count=1)]
    assert run(device, ops, watchdog=latency)
    with pytest.raises(DeviceError) as info:
        run(device, ops, watchdog=latency - 1)
    assert info.value.code == ErrorCode.WATCHDOG


def test_a_layer_that_is_stored_for_longer_than_the_next_one_takes_has_the_cycles_up_to_then() -> None:
    times = np.zeros((3, 4), np.uint64)
    times[:, 2], times[:, 3] = (1, 40, 60), (90, 70, 120)
    layers = [Layer(name, "Copy", "npu", first, 1) for first, name in enumerate("abc")]
    rows = layer_cycles(layers, [Trace(times, 130)])
    assert [(r.layer.name, r.last, r.cycles) for r in rows] == [("a", 90, 70), ("b", 70, 0), ("c", 120, 60)]


def test_trace_and_timeline(tmp_path: Path) -> None:
    device = CycleDevice(TINY)
    cycles = run(device, PROGRAM, trace=True)
    trace = device.trace
    assert trace is not None and trace.cycles == cycles and device.traces == [trace]
    for first, second in ((0, 2), (2, 3)):  # the semaphore in the cycle after the signal, then the instruction
        assert trace.started[second] == trace.ended[first] + 3 and 0 < trace.waited[second] <= trace.ended[first]
    layers = [Layer("a", "Copy", "npu", 0, 3), Layer("b", "Copy", "npu", 3, 1), Layer("host", "Softmax", "cpu")]
    rows = layer_cycles(layers, [trace, trace])
    assert [(r.layer.name, r.last) for r in rows[2:]] == [(r.layer.name, r.last + trace.cycles) for r in rows[:2]]
    assert sum(r.cycles for r in layer_cycles(layers, [trace])) == cycles
    path = tmp_path / "timeline.json"
    write_timeline(path, [*PROGRAM, op("END")], layers, [trace])
    found = json.loads(path.read_text())["traceEvents"]
    assert found == json.loads(json.dumps(events([*PROGRAM, op("END")], layers, [trace])))
    slices = [e for e in found if e["ph"] == "X" and e["tid"] % 2 == 0]
    assert {e["name"] for e in slices} == {"LOAD a", "VECTOR a", "STORE b"}
    assert [e["name"] for e in found if e["ph"] == "X" and e["tid"] % 2 == 1] == ["semaphore 1", "semaphore 2"]
    assert all(0 < e["ts"] <= cycles for e in found if e["ph"] != "M")


@pytest.mark.parametrize("interval", [1, 1.25, 16 / 7, 2.5, 3, 63.9])
def test_beats_keep_their_pace(interval: float) -> None:
    """Many beats take as many times the interval, however little of a cycle a beat takes more."""
    device = CycleDevice(TINY, MemoryTiming(read_interval=interval, write_interval=interval))
    few, many = 40, 240
    assert TINY.block_in == TINY.bus_bytes  # a row is a beat
    for instruction, more in (("LOAD", {}), ("STORE", {"offset": 4096})):
        short, long = (run(device, [op(instruction, region=1, count=n, **more)]) for n in (few, many))
        assert short and long and abs(long - short - (many - few) * interval) < 1.01
