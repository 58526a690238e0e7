"""Weights that stay in the NPU from run to run: the same bytes, exact cycles, a first run where they may be gone."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import zoo
from tilewright.compiler.errors import CompileError
from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import DeviceError
from tilewright.isa.instructions import Memory
from tilewright.isa.program import Program
from tilewright.runtime.executor import Executor
from tilewright.simulator.cycle import CycleDevice

TINY = preset("tiny")


def compiled(config: NpuConfig, network: str = "autoencoder", **options: bool) -> Program:
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    return tw.compile_program(model, config, cache=False, **options)


def inputs(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {i.name: rng.integers(-99, 100, i.shape).astype(i.dtype) for i in program.inputs}


def machine() -> NpuConfig:
    """A machine with as many tiles as the network has, to the tile."""
    with pytest.raises(CompileError) as refused:
        compiled(TINY.with_(name="few", wgt_tiles=64), keep_weights=True)
    message = str(refused.value)
    assert message.startswith("the weights do not stay in WGT: the program loads ")
    assert message.endswith("tiles, wgt_tiles of 'few' is 64")
    tiles = int(message.split(" tiles")[0].split()[-1])
    return TINY.with_(name="all", wgt_tiles=tiles)


@pytest.mark.network
def test_later_runs() -> None:
    config = machine()
    plain, kept = compiled(config), compiled(config, keep_weights=True)
    assert kept.of_first_run().signed_digest() == plain.signed_digest() and b'"later"' not in plain.to_bytes()
    kept = Program.from_bytes(kept.to_bytes())
    device = CycleDevice(config)
    first, second = Executor(kept, device), Executor(plain, device, beside=True)
    wanted = Executor(plain, CycleDevice(config))
    found = tw.explain(kept)
    ops, (later,) = kept.ops(), kept.later
    loads = [at for at, op in enumerate(ops) if op.name == "LOAD" and op["target"] == Memory.WGT]
    assert loads and max(loads) < later.first

    def run(seed: int) -> int | None:
        x = inputs(plain, seed)
        result = first.run(x)
        for name, value in wanted.run(x).outputs.items():
            assert np.array_equal(result.outputs[name], value)
        return result.counters.cycles

    cycles = [run(seed) for seed in range(3)]
    assert cycles == [found.cycles, found.later_cycles, found.later_cycles]
    assert found.later_cycles is not None and found.later_cycles < 0.6 * found.cycles
    second.run(inputs(plain, 9))  # another program
    assert [run(3), run(4)] == cycles[:2]
    with pytest.raises(DeviceError, match="TIMEOUT"):
        first.run(inputs(plain, 5), timeout=100)
    assert [run(6), run(7)] == cycles[:2]


@pytest.mark.network
def test_refused() -> None:
    with pytest.raises(CompileError, match="one turn of the NPU runs all layers; this program has 0"):
        compiled(TINY, keep_weights=True, cpu_only=True)


@pytest.mark.cosim
@pytest.mark.slow
@pytest.mark.long
def test_rtl() -> None:
    """WGT of the RTL keeps its tiles between runs; their cycles are those of the cycle-level simulator."""
    config = preset("small")
    kept = compiled(config, "ds_cnn", keep_weights=True)
    devices = [Executor(kept, kind(config)) for kind in (RtlDevice, CycleDevice)]
    for seed in range(3):
        rtl, cycle = (device.run(inputs(kept, seed)) for device in devices)
        assert rtl.counters == cycle.counters
        assert all(np.array_equal(rtl.outputs[name], cycle.outputs[name]) for name in rtl.outputs)
