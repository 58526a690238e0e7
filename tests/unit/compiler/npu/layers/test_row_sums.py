"""Zero points of a product's second operand by sums of rows: the reference's bytes, in fewer cycles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import quantized_ops
from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.npu.layers import conv
from tilewright.compiler.npu.layers.row_sums import RowSums
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.runtime.executor import Executor
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice


class Zero(Net):
    """A network whose first operand has zero point 0, and all other activations `zero_point`."""

    zero_point = 0

    def quant(self, dtype: object) -> Quant:
        return Quant.of(np.float32(0.05), 0 if not self.graph.inputs else self.zero_point)


def product(zero_point: int, rows: int, k: int, outputs: int, scale: float) -> tuple[Net, str]:
    """Returns a network with a product of two activations, and the name of its result."""
    net = Zero()
    net.zero_point = zero_point
    a, b = net.input((2, rows, k), np.int8), net.input((2, outputs, k), np.int8)
    fine = Quant.of(np.float32(scale), 3)
    made = net.finish(
        "QMatMul", [a, net.transpose(net.table(b), 0, 2, 1)], (2, rows, outputs), np.int8, quant=fine, out_min=-128,
        out_max=127,
    )  # fmt: skip
    net.done(made)
    return net, made


@pytest.mark.medium
@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize(
    ("config", "zero_point", "k", "outputs"),
    [
        ("base", 1, 64, 100), ("base", -2, 64, 150), ("base", 7, 208, 64), ("base", -9, 192, 200),
        ("base", 28, 32, 300), ("base", -128, 8, 256), ("large", -128, 24, 512),
        ("small", 5, 64, 100), ("small", -3, 192, 70), ("tiny", 2, 64, 60), ("tiny", -1, 248, 20), ("wide", 3, 64, 90),
        ("large", -4, 200, 400),
    ],
)  # fmt: skip
def test_products(config: str, zero_point: int, k: int, outputs: int, keep: str) -> None:
    """Products equal the reference on both simulators, with rows of extreme sums.

    No product is by constant tiles, except where the zero point is -128.
    """
    machine = PRESETS[config]
    net, made = product(zero_point, 37, k, outputs, 0.05 * 0.05 * 500)
    blocks = -(-outputs // machine.block_in) * machine.block_in // machine.block_out
    assert RowSums.of(machine, k, zero_point, max(1, blocks)) is not None or zero_point == -128
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-128, 128, net.graph.tensor(name).shape).astype(np.int8) for name in net.graph.inputs)
    a[:, 0], a[:, 1], a[:, 2] = -128, 127, 0
    a[:, 3:12] = np.where(np.arange(k) < np.linspace(0, k, 9)[:, None], 127, -128)
    inputs = dict(zip(net.graph.inputs, (a, b), strict=True))
    expected = quantized_ops.run(net.graph, inputs)[made]
    program = compile_graph(net.graph, machine, CompileOptions(keep=keep))  # type: ignore[arg-type]
    for device in (FunctionalDevice(machine), CycleDevice(machine)):
        got = Executor(program, device).run(inputs).outputs[made]
        assert np.array_equal(got, expected) and len(np.unique(expected)) > 40


@pytest.mark.parametrize("zero_point", [1, -7, 20, 60, -128])
def test_every_sum(zero_point: int) -> None:
    """Quotient and remainder of every sum are bytes and give the sum again; so are the shares of the zero point."""
    for k in (8, 17, 64, 100, 197, 252):
        sums = RowSums.of(PRESETS["base"], k, zero_point, 400)
        if sums is None:
            assert k < 64 or abs(zero_point) > 20
            continue
        totals = np.arange(-128 * k, 127 * k + 1)
        quotients = np.rint(totals.astype(np.float32) * np.float32(1 / sums.divisor)).astype(np.int64)
        rests = totals - quotients * sums.divisor
        assert np.abs(quotients).max() <= 127 and np.abs(rests).max() <= 127
        rests = -zero_point, sums.steps
        assert max(abs(-(-rests[0] // rests[1])), abs(rests[0] // rests[1])) <= 127
        shares = -zero_point * sums.divisor, sums.steps * 15
        assert max(abs(-(-shares[0] // shares[1])), abs(shares[0] // shares[1])) <= 128


@pytest.mark.medium
def test_what_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row sums are refused without a zero point, for few outputs and long rows; elsewhere they save cycles."""
    base = PRESETS["base"]
    assert RowSums.of(base, 64, 0, 20) is None and RowSums.of(base, 300, 1, 20) is None
    assert RowSums.of(base, 64, 1, 1) is None and RowSums.of(base, 32, 100, 20) is None
    cycles = []
    for by_sums in (True, False):
        if not by_sums:
            monkeypatch.setattr(conv.ConvLayer, "row_sums", lambda self, config: None)
        net, _ = product(2, 96, 64, 192, 0.1)
        program = compile_graph(net.graph, base, CompileOptions())
        inputs = {name: np.zeros(net.graph.tensor(name).shape, np.int8) for name in net.graph.inputs}
        cycles.append(Executor(program, CycleDevice(base)).run(inputs).counters.cycles)
    assert cycles[0] < 0.8 * cycles[1]
