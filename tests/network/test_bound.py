"""No program is faster than its bound: networks on several machines, some with hardly anything in the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import tilewright as tw
from tilewright import zoo
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.runtime.cost import run_npu_steps
from tilewright.simulator.bound import bound_cycles
from tilewright.simulator.cycle import CycleDevice

BASE = PRESETS["base"]
SLOW = MemoryTiming(read_latency=1, write_latency=1, read_interval=2.4, write_interval=5)
MACHINES = (
    "nano",
    "small",
    BASE.with_(name="wide_bus", axi_data_bits=256, act_rows=32768, wgt_tiles=2048, acc_rows=4096),
    BASE.with_(name="narrow_in", block_in=8),
    BASE.with_(name="no_window", depthwise=0),
    "large",
)
NETWORKS = ("resnet8", "ds_cnn", "vww", "autoencoder", "squeeze_excite", "transformer", "segmentation", "mobilenet_v2")


def cases() -> Iterator[object]:
    """Every network on every machine; one machine for each, all of them in turn, is not among the long tests, but for
    the network that takes longest."""
    for (n, network), (m, machine) in itertools.product(enumerate(NETWORKS), enumerate(MACHINES)):
        name = machine if isinstance(machine, str) else machine.name
        long = network == "mobilenet_v2" or m != n % len(MACHINES)
        yield pytest.param(network, machine, id=f"{network}-{name}", marks=[pytest.mark.long] * long)


@pytest.mark.network
@pytest.mark.parametrize(("network", "machine"), [*cases()])
def test_no_run_is_faster(network: str, machine: str | NpuConfig) -> None:
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    program = tw.compile(model, machine, cache=False)
    for memory in (DEFAULT_MEMORY, SLOW):
        cycles = run_npu_steps(program, CycleDevice(program.config, memory, functional=False)).cycles
        assert cycles and 0.05 * cycles < bound_cycles(program.layers, program.config, memory) <= cycles
