"""A 16x8 convolution on machines with results of 16 bits: the bytes of LiteRT's reference kernel, and its cycles.

python -m tests.network.test_wide_results      cycles on `base`, against the same convolution of bytes
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.common.tflite_models import Model, Op, T
from tests.common.wide_convolution import WideConvolution
from tests.network.layer_cases import make
from tests.reference import quantized_ops
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.pipeline import compile_graph
from tilewright.hw.sim.device import RtlDevice
from tilewright.isa import wide_numerics
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import Device
from tilewright.runtime.executor import Executor
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.equality import BARE, CONFIGS


def convolution(config: NpuConfig, x: tuple[int, int, int], o: int, k: int) -> tuple[WideConvolution, np.ndarray]:
    """A random convolution and LiteRT's result. Sums of two outputs exceed 32 bits, some results the limits."""
    r = np.random.default_rng(o + k)
    sx, sw, sy = (
        np.float32(0.001),
        np.exp(r.uniform(-6, -4, o)).astype(np.float32),
        np.float32(0.001 * x[2] * k * k / 9),
    )
    w = r.integers(-127, 128, (o, k, k, x[2]))
    w[0], w[1], sw[:2] = 127, -127, 1e-7 * sy / sx
    values = np.where(r.integers(4, size=x) == 0, r.choice([-32768, 32767], x), r.integers(-32768, 32768, x))
    values[:k, :k] = 32767
    bias = r.integers(-(1 << 30), 1 << 30, o)
    bias[:2] = 1 << 38, -(1 << 38)  # as the channels of trained networks have that do nothing
    tensors = [
        T("x", (1, *x), "int16", sx), T("w", w.shape, "int8", sw, data=w), T("b", (o,), "int64", sx * sw, data=bias),
        T("y", (1, x[0] - k + 1, x[1] - k + 1, o), "int16", sy),
    ]  # fmt: skip
    options = ("Conv2DOptions", {"Padding": 1, "StrideH": 1, "StrideW": 1})
    data = Model(tensors, [Op("CONV_2D", ["x", "w", "b"], ["y"], options, 4)], ["x"], ["y"]).build()
    inputs = values.astype(np.int16)
    (expected,) = LiteRtReference(data).run({"x": inputs[None]}).values()
    found = [wide_numerics.wide_multiplier(float(f)) for f in wide_numerics.wide_factor(sx, sw, sy)]
    multipliers, shifts = ([v[i] for v in found] for i in (0, 1))
    return WideConvolution(config, inputs, w.astype(np.int8), bias, multipliers, shifts), expected[0]


#: `bare` is the one of them that other tests build as well.
MACHINES = CONFIGS | {BARE.name: BARE}
DEVICES = {
    "reference": lambda c: FunctionalDevice(c, "reference"),
    "functional": FunctionalDevice,
    "cycle": CycleDevice,
}


@pytest.mark.parametrize("name", ["two_passes", "narrow_in", "one_queue"])
@pytest.mark.parametrize("device", DEVICES)
def test_bytes_of_the_reference(name: str, device: str) -> None:
    conv, expected = convolution(CONFIGS[name], (5, 6, 16), 16, 2)
    assert conv.bias[0] > 1 << 31 and 0 < expected[0, 0, 0] < 32767
    got, _ = conv.run(DEVICES[device](CONFIGS[name]))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in ("two_passes", "narrow_in", "one_queue")), "bare"]
)
def test_rtl_bytes_and_cycles_of_compiled_layers(name: str) -> None:
    """Dense, grouped and depthwise layers of the compiler, some behind each other."""
    config = MACHINES[name]
    for seed in range(4):
        graph, inputs = make("wide_conv", 7000 + seed)
        (output,) = graph.outputs
        expected = quantized_ops.run(graph, inputs)[output]
        program = compile_graph(graph, config)
        assert {layer.where for layer in program.layers if layer.macs} == {"npu"}
        cycles = set()
        for kind in (FunctionalDevice, CycleDevice, RtlDevice):
            run = Executor(program, kind(config)).run(inputs)
            np.testing.assert_array_equal(run.outputs[output], expected)
            cycles |= {run.counters.cycles} - {None}
        assert len(cycles) == 1


@pytest.mark.slow
def test_rtl_bytes_and_cycles() -> None:
    conv, expected = convolution(BARE, (5, 6, 16), 16, 2)
    runs = [conv.run(kind(BARE)) for kind in (RtlDevice, CycleDevice)]
    for got, _ in runs:
        np.testing.assert_array_equal(got, expected)
    assert runs[0][1].cycles == runs[1][1].cycles


def test_no_more_than_twice_the_cycles_of_bytes() -> None:
    sixteen, eight = cycles(preset("base").with_(wide_results=1), (8, 8, 64), 64, 3)
    assert sixteen <= 2 * eight


def cycles(config: NpuConfig, x: tuple[int, int, int], o: int, k: int) -> tuple[int, int]:
    """Cycles of a convolution with results of 16 bits, and of one of bytes."""
    conv, expected = convolution(config, x, o, k)
    device: Device = CycleDevice(config)
    (got, sixteen), (_, eight) = conv.run(device), conv.run(device, sixteen=False)
    np.testing.assert_array_equal(got, expected)
    return sixteen.cycles, eight.cycles


def main() -> None:
    """Prints cycles of some convolutions on `base`."""
    for x, o, k in (
        ((8, 8, 64), 64, 3),
        ((8, 8, 64), 64, 1),
        ((10, 10, 32), 32, 3),
        ((8, 8, 16), 16, 3),
        ((8, 8, 16), 16, 1),
    ):
        sixteen, eight = cycles(preset("base").with_(wide_results=1), x, o, k)
        print(f"{k}x{k} {list(x)} to {o}: {sixteen} and {eight} cycles, {sixteen / eight:.2f} times")


if __name__ == "__main__":
    main()
