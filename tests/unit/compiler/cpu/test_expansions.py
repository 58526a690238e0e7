"""Operations written out for targets that lack them, against the instructions of this machine and numpy."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from tests.common import needs
from tests.unit.compiler.cpu.support import execute
from tilewright.compiler.cpu import Target
from tilewright.compiler.cpu.expr import fma
from tilewright.compiler.cpu.ir.expansions import expand
from tilewright.compiler.cpu.ir.writer import Operand
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops import RULES
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.graph.graph import Graph, Node, Tensor

if platform.machine() != "x86_64":
    needs.skip(needs.X86, platform.machine(), module=True)

PLAIN = Target(triple="x86_64-unknown-linux-gnu", cpu="x86-64", has_fma=False)


def fma_rule(ctx: Context) -> None:
    a, b, c = (ctx.input(i) for i in range(3))
    ctx.define(ctx.out_shape(), a.dtype, lambda idx: fma(*(ctx.read(v, idx) for v in (a, b, c))), 3)


def run_fma(target: Target, inputs: list[np.ndarray]) -> np.ndarray:
    from tilewright.compiler.cpu import compile_segment

    graph = Graph("g")
    for name in "abcy":
        graph.add(Tensor(name, inputs[0].shape, np.dtype(np.float32)))
    graph.nodes = [Node("TestFma", ["a", "b", "c"], ["y"])]
    segment = compile_segment(graph, graph.nodes, ["a", "b", "c"], ["y"], "s", target)
    return execute(segment, graph, dict(zip("abc", inputs)))[0]


def test_fma(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to the instruction, on operands for which float64 alone rounds twice, too."""
    monkeypatch.setitem(RULES, "TestFma", fma_rule)
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, (3, 20000), dtype=np.uint64).astype(np.uint32).view(np.float32)
    k = random.integers(1, 2048, (2, 20000)).astype(np.float32)
    # Products that are ties of float32, and a summand far below that decides them.
    ties = np.stack([1 + k[0] * 2**-12, 1 + k[1] * 2**-12, random.choice([-1, 1], 20000) * 2.0**-80]).astype(np.float32)
    near = random.standard_normal((3, 20000)).astype(np.float32)
    near[2] = -near[0] * near[1]  # cancellation
    values = np.concatenate([bits, ties, near], 1)
    values = values[:, ~np.isnan(values).any(0)]
    found = run_fma(PLAIN, list(values))
    want = run_fma(Target(triple=PLAIN.triple, cpu="x86-64-v3", vector_bits=256), list(values))
    number = ~np.isnan(want)
    assert np.array_equal(np.isnan(found), ~number)
    assert np.array_equal(found[number].view(np.uint32), want[number].view(np.uint32))
    with np.errstate(all="ignore"):
        a, b, c = values.astype(np.float64)
        naive = (a * b + c).astype(np.float32)
    assert (naive[number] != want[number]).sum() > 100


def test_only_where_needed() -> None:
    """A target with the instruction gets it."""
    from tilewright.compiler.cpu.ir.module import Module

    zero = Operand("0.0", "float")
    for target in (Target.named("aarch64-linux"), Target.named("riscv64-linux"), Target.named("x86_64-linux")):
        f = Function(Module(target))
        assert expand(f, "fma", zero, zero, zero) is None
        assert expand(f, "roundeven", zero) is None


@pytest.mark.medium
@pytest.mark.parametrize("target", [PLAIN, Target(triple=PLAIN.triple, cpu="x86-64-v3", vector_bits=256)])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, -14), (np.uint8, 131)])
def test_quantize_without_a_division(target: Target, dtype: type, zero: int) -> None:
    """Equal to the division next to every tie, with and without fused multiply-adds."""
    from tilewright.compiler.cpu import compile_segment

    random = np.random.default_rng(1)
    scales = [0.0187, 1 / 3, 0.1, 2.0**-40, 3.0e17, *random.uniform(0.001, 1, 12)]
    for scale in np.array(scales, np.float32):
        ties = (np.arange(-300, 300) + 0.5).astype(np.float64) * np.float64(scale)
        near = ties.astype(np.float32).view(np.int32)[:, None] + np.arange(-3, 4, dtype=np.int32)
        special = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.0, -0.0], np.float32)
        many = random.uniform(-300, 300, 2000).astype(np.float32) * scale
        x = np.concatenate([near.view(np.float32).reshape(-1), special, many])
        graph = Graph("g")
        graph.add(Tensor("x", x.shape, x.dtype))
        graph.add(Tensor("y", x.shape, np.dtype(dtype)))
        names = [graph.constant("s", scale), graph.constant("z", np.array(zero, dtype))]
        graph.nodes = [Node("QuantizeLinear", ["x", *names], ["y"])]
        found = execute(compile_segment(graph, graph.nodes, ["x"], ["y"], "s", target), graph, {"x": x})[0]
        limits = np.iinfo(dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            whole = np.rint(x / scale)  # float32
        want = np.clip(np.where(np.isnan(whole), -np.inf, whole.astype(np.float64)) + zero, limits.min, limits.max)
        np.testing.assert_array_equal(found, want.astype(dtype))
