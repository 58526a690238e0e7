"""The operations of kernels, counted in their text, beside counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.cpu.cost import HOST_MODELS, THIS, Work, host_model, work_of
from tilewright.compiler.cpu.segment import Segment, prepare_segment
from tilewright.compiler.cpu.target import HOSTS, Target
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.isa.program_parts import HostFacts

TEXT = """define hidden void @kernel_x(ptr noalias %p0, ptr noalias %p1) #0 {
entry:
  br label %L1.head
L1.head:
  %iL1 = phi i64 [ 0, %entry ], [ %nL1, %L1.latch ]
  %cL1 = icmp slt i64 %iL1, 10
  br i1 %cL1, label %L1.body, label %L1.exit
L1.body:
  %left = sub nsw i64 40, 8
  %end = call i64 @llvm.smin.i64(i64 %left, i64 96)
  br label %L2.head
L2.head:
  %iL2 = phi i64 [ 0, %L1.body ], [ %nL2, %L2.latch ]
  %cL2 = icmp slt i64 %iL2, %end
  br i1 %cL2, label %L2.body, label %L2.exit
L2.body:
  %t1 = getelementptr float, ptr %p0, i64 %iL2
  %t2 = load <16 x float>, ptr %t1, align 4
  %t3 = fadd <16 x float> %t2, %t2
  %t4 = fdiv <16 x float> %t3, %t2
  store <16 x float> %t4, ptr %t1, align 4
  br label %L2.latch
L2.latch:
  %nL2 = add nuw nsw i64 %iL2, 16
  br label %L2.head
L2.exit:
  %t5 = load float, ptr %p1, align 4
  %t6 = fmul float %t5, %t5
  br label %L1.latch
L1.latch:
  %nL1 = add nuw nsw i64 %iL1, 1
  br label %L1.head
L1.exit:
  ret void
}
"""


@pytest.mark.parametrize(("bits", "registers"), [(512, 1), (128, 4)])
def test_counts_of_a_text(bits: int, registers: int) -> None:
    inner = 10 * 2 * registers  # 32 elements, 16 at a time
    found = work_of("@kernel_x", {"@kernel_x": TEXT}, bits)
    assert found == Work(vector=inner, divide=inner, memory=2 * inner + 10, scalar=10, turns=10 + 20)


def _product(m: int, k: int, n: int, target: Target) -> Segment:
    graph = Graph()
    rng = np.random.default_rng(0)
    graph.add(Tensor("x", (m, k), np.dtype(np.float32)))
    graph.add(Tensor("w", (k, n), np.dtype(np.float32), rng.standard_normal((k, n), np.float32)))
    graph.add(Tensor("y", (m, n), np.dtype(np.float32)))
    graph.nodes = [Node("MatMul", ["x", "w"], ["y"])]
    graph.inputs, graph.outputs = ["x"], ["y"]
    return prepare_segment(graph, graph.nodes, ["x"], ["y"], "tw_test", target)


def test_multiplications_of_a_product() -> None:
    """Every fused multiply-add of a vector counts as one operation, in whole register tiles."""
    target = HOSTS["x86_64-linux"]  # 8 lanes
    one, two = (sum(c.work.vector for c in _product(24, k, 64, target).costs) for k in (64, 128))
    assert two - one == 24 * 64 * 64 / 8


def test_nodes_of_a_kernel_and_its_bytes() -> None:
    graph = Graph()
    for name in "xyz":
        graph.add(Tensor(name, (64, 32), np.dtype(np.float32)))
    graph.nodes = [Node("Abs", ["x"], ["y"], name="first"), Node("Neg", ["y"], ["z"], name="second")]
    segment = prepare_segment(graph, graph.nodes, ["x"], ["z"], "tw_test", HOSTS["x86_64-linux"])
    (cost,) = segment.costs
    assert {node.name for node in cost.nodes} == {"first", "second"}
    assert cost.nbytes == 2 * 64 * 32 * 4
    assert cost.work.memory == 2 * 64 * 32 / 8


def test_models_of_hosts() -> None:
    assert HOST_MODELS.keys() == HOSTS.keys() | {THIS}
    target = HOSTS["armv7-linux"]
    assert host_model(HostFacts(target.triple, tuple(target.needed))).name == "armv7-linux"
    assert host_model(HostFacts(Target.host().triple, ("another",))).name == THIS
    model = HOST_MODELS["armv7-linux"]
    work = {"vector": 650e6, "divide": 1e6}
    assert model.seconds(work, 0) == pytest.approx(model.cycles["vector"] + model.cycles["divide"] / 650)
    assert model.seconds(work, 0, threads=2) == pytest.approx(model.seconds(work, 0) / 2)
