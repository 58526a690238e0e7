"""The latencies of `docs/machine.md` and `tilewright.isa.timing`, seen on the debug strobes of the RTL."""

from __future__ import annotations

import pytest

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.instructions import Engine, Memory, Source
from tilewright.isa.timing import ACT_READ_CYCLES, VECTOR_SIGNAL, MemoryTiming, gemm_signal, table_chunk_cycles
from verification.programs.equality import VARIANTS

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

CONFIGS = {
    "tiny": preset("tiny"),
    "base": preset("base"),
    "narrow_out": VARIANTS["narrow_out"],
    "wide_bus": VARIANTS["wide_bus"],
}


class Timeline:
    """Cycles of every strobe of one run."""

    def __init__(self, config: NpuConfig, ops: list[Op]) -> None:
        device = RtlDevice(config, MemoryTiming(read_latency=4, write_latency=4))
        base = device.allocate(1 << 16)
        device.write(base, to_bytes([*ops, op("END")]))
        self.counters = device.run([Region(base, 1 << 16, True, True)], 0, 0, len(ops) + 1, log="steps")
        self.events = device.events

    def cycles(self, engine: Engine, kind: str) -> list[int]:
        return [e.cycle for e in self.events if e.engine == engine and e.kind == kind]


def beats(config: NpuConfig, rows: int, low: int = 0) -> int:
    """Bus beats of one run of ACT rows that starts `low` bytes into a beat."""
    return -(-(rows * config.block_in + low) // config.bus_bytes)


#: Wider ones and other shapes of the array are built for this alone.
_BUILT = ("base", "narrow_out")


@pytest.fixture(params=[pytest.param(n, marks=[pytest.mark.long] if n in _BUILT else []) for n in CONFIGS])
def config(request: pytest.FixtureRequest) -> NpuConfig:
    return CONFIGS[request.param]


def test_gemm(config: NpuConfig) -> None:
    """No bubble between ready instructions, configuration hidden, signals gemm_signal after the last step; after an
    instruction of one step a cycle is lost, in which the next one takes its semaphores."""
    loop = {"act_stride": 1, "acc_stride": 1}
    ops = [op("GEMM_LOOP", level=0, count=40, **loop), op("GEMM")]
    ops += [op("GEMM_LOOP", level=0, count=20, **loop), op("GEMM_LOOP", level=1, count=2), op("GEMM", accumulate=1)]
    ops += [op("DEPTHWISE", step0=1, step1=1), op("GEMM_SYNC"), op("GEMM", reduce=1)]
    t = Timeline(config, ops)
    starts, steps, ends = (t.cycles(Engine.GEMM, k) for k in ("start", "step", "end"))
    first = starts[0] + 1
    assert steps == [*range(first, first + 40 + 40 + 40 + 1), *range(first + 122, first + 122 + 40)]
    lasts = [steps[39], steps[79], steps[119], steps[120], steps[160]]
    assert starts == [steps[0] - 1, *lasts[:-2], lasts[-2] + 1]
    assert ends == [cycle + gemm_signal(config) for cycle in lasts]


def test_vector(config: NpuConfig) -> None:
    ops = [
        op("VECTOR_LOOP", level=0, count=30, a_stride=1, b_stride=1, dst_stride=1),
        op("VECTOR"),
        op("VECTOR", source=Source.ACT, b=1, add=1),
        op("VECTOR", source=Source.ACT, b=config.act_banks, add=1),  # a and b in one bank
        op("VECTOR_SYNC"),
    ]
    t = Timeline(config, ops)
    starts, steps, ends = (t.cycles(Engine.VECTOR, k) for k in ("start", "step", "end"))
    first, passes = starts[0] + 1, config.vector_passes
    second = first + 30 * passes + 1  # a cycle between instructions
    third = second + 30 * passes + 2  # another cycle where a and b are read one after the other
    expected = [
        *range(first, first + 30 * passes),
        *range(second, second + 30 * passes),
        *(third + row * (passes + 1) + p for row in range(30) for p in range(passes)),
        third + 30 * (passes + 1),
    ]
    assert steps == expected
    lasts = [30 * passes - 1, 60 * passes - 1, 90 * passes - 1, 90 * passes]
    assert ends == [steps[n] + VECTOR_SIGNAL for n in lasts]
    assert t.counters.engines["VECTOR"].wait_memory == 30


def test_semaphore_turnaround(config: NpuConfig) -> None:
    """GEMM gives in cycle t, VECTOR takes in t+2, starts in t+3, steps in t+4, when the ACC write of t+3 is visible."""
    t = Timeline(config, [op("GEMM", signal0=1), op("VECTOR", wait0=1)])
    assert t.cycles(Engine.VECTOR, "start") == [t.cycles(Engine.GEMM, "end")[0] + 3]
    first = t.cycles(Engine.GEMM, "end")[0] + 4
    assert t.cycles(Engine.VECTOR, "step") == [first + k for k in range(config.vector_passes)]


def test_load_and_store(config: NpuConfig) -> None:
    """One beat per cycle, at any width of bus and row, fill rows without a gap, one AR per cycle."""
    ops = [
        op("LOAD_PAD", left=2, right=3, top=1, bottom=1),
        op("LOAD_DIM", level=0, count=4, mem_stride=256, row_stride=32),
        op("LOAD", offset=4096, count=8),
        op("LOAD_SYNC", signal0=1),
        op("STORE", offset=8192, count=32, wait0=1),
    ]
    t = Timeline(config, ops)
    load = t.cycles(Engine.LOAD, "step")
    assert len(load) == 2 * 13 + 4 * (5 + beats(config, 8)) + 1
    assert load[:15] == list(range(load[0], load[0] + 15))  # the fill rows before the first data
    assert t.cycles(Engine.LOAD, "start")[0] + 3 == load[0]
    # START in cycle 0, AR in cycle 7; descriptor of the first LOAD a fixed time after its beats.
    store = t.cycles(Engine.STORE, "step")
    assert store == list(range(store[0], store[0] + beats(config, 32)))
    assert store[0] == t.cycles(Engine.STORE, "start")[0] + 4 + ACT_READ_CYCLES


def test_unaligned_runs(config: NpuConfig) -> None:
    """One beat more for a run that starts within a beat, and still no gap; LOAD takes what comes without one."""
    ops = [
        op("LOAD", offset=4096 + 3, count=96, signal0=1),
        op("STORE", offset=8192 + 3, count=96, wait0=1),
        op("STORE_DIM", level=0, count=3, mem_stride=1024, row_stride=1),
        op("STORE", offset=16384 + 3, count=8 * config.bus_bytes // config.block_in + 1),
    ]
    t = Timeline(config, ops)
    load, store = t.cycles(Engine.LOAD, "step"), t.cycles(Engine.STORE, "step")
    long = beats(config, 96) + 1
    assert load == list(range(load[0], load[0] + long)) and store[:long] == list(range(store[0], store[0] + long))
    short = beats(config, 8 * config.bus_bytes // config.block_in + 1, 3)
    assert store[long:] == list(range(store[long], store[long] + 3 * short))


def test_fill_rows(config: NpuConfig) -> None:
    """A cycle for a fill row, however wide; a fill row of PRM or LUT takes that of writing each of its chunks."""
    for target in Memory:
        ops = [op("LOAD_PAD", left=2, right=1, fill=7), op("LOAD", target=target, offset=4096, count=1)]
        load = Timeline(config, ops).cycles(Engine.LOAD, "step")
        chunks = -(-target.row_bytes(config) // config.bus_bytes)
        fill = chunks if target in (Memory.PRM, Memory.LUT) else 1
        assert len(load) == 3 * fill + chunks
        write = table_chunk_cycles(config) if target == Memory.LUT else 1  # of a chunk; two wait
        assert load[: 2 * fill] == [load[0], *(load[0] + 1 + write * n for n in range(2 * fill - 1))]
