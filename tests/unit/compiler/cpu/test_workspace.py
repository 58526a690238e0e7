"""The workspace: nothing that is needed is written over, whatever the graph, and a plan that does it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.common.segments import run_segment
from tests.unit.compiler.cpu.support import check
from tests.unit.compiler.cpu.test_segment import small
from tilewright.compiler.cpu import compile_segment
from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.accesses import accesses
from tilewright.compiler.cpu.stages import plan
from tilewright.compiler.cpu.stages.memory import Lifetime, place
from tilewright.compiler.cpu.stages.proof import Uses, prove
from tilewright.compiler.cpu.stages.stage import Call
from tilewright.compiler.errors import CompileError
from tilewright.compiler.llvm.masked_stores import single_lanes_written_out
from verification.random_graphs.check import differences, tflite_differences
from verification.random_graphs.generator import random_graph
from verification.random_graphs.tflite import random_tflite


@pytest.mark.slow
@settings(max_examples=12)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_random_graphs(random: Random, nodes: int) -> None:
    """`make fuzz-graphs` does it with many more."""
    assert differences(random_graph(random, nodes)) == []


@pytest.mark.medium
@settings(max_examples=8)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_random_tflite_graphs(random: Random, ops: int) -> None:
    assert tflite_differences(random_tflite(random, ops)) == []


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("width", [9, 17, 33, 57])
@pytest.mark.parametrize(
    "source, kind", [("int64", "int32"), ("int64", "uint8"), ("int32", "uint8"), ("int32", "int16")]
)
def test_narrowed_rows(width: int, source: str, kind: str) -> None:
    """The last element of a row, alone in its vector, is written without what lies behind it."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [helper.make_node("Cast", [n], [f"{n}{kind}"], to=to) for n in "ab"]
    nodes.append(helper.make_node("Concat", [f"a{kind}", f"b{kind}"], ["y"], axis=1))
    nodes.append(helper.make_node("Cast", ["c"], ["z"], to=to))
    feeds = {n: RNG.integers(0, 99, (5, width)).astype(source) for n in "ab"} | {"c": np.arange(width).astype(source)}
    check(nodes, feeds, {}, ["y", "z"])


def test_neighbour_of_narrowed_rows() -> None:
    """The buffer right behind rows that end in such an element keeps its first element."""
    n = helper.make_node
    nodes = [
        n("CumSum", ["a", "axis"], ["before"]),
        n("Add", ["x", "b"], ["wide"]),
        n("Cast", ["wide"], ["rows"], to=helper.np_dtype_to_tensor_dtype(np.dtype("int32"))),
        n("CumSum", ["rows", "axis"], ["y"]),
        n("Neg", ["before"], ["z"]),
    ]
    feeds = {
        "a": np.ones((17,), np.float32),
        "x": RNG.integers(0, 99, (64, 17)),
        "b": RNG.integers(0, 99, (17,)),
    }
    segment = check(nodes, feeds, {"axis": np.array(0)}, ["y", "z"])
    assert segment.memory.live >= 64 * 17 * 4 + 17 * 4  # both are there at one time


def test_single_lanes() -> None:
    """Only masked stores of one lane are written out, wherever the lane is."""
    store = "  call void @llvm.masked.store.v4i8.p0(<4 x i8> %v, ptr align 1 %p, <4 x i1> <{}>)\n"
    several = store.format("i1 true, i1 true, i1 false, i1 false")
    assert single_lanes_written_out(several) == several
    found = single_lanes_written_out("  %v = f\n" + store.format("i1 false, i1 false, i1 true, i1 false"))
    assert "masked" not in found and "getelementptr i8, ptr %p, i64 2" in found and "store i8" in found


def test_poison() -> None:
    """A poisoned workspace changes no result, and is poison when all is done."""
    graph = small()
    x = {n: RNG.standard_normal(graph.tensor(n).shape).astype(np.float32) for n in graph.inputs}
    results = []
    for poison in (False, True):
        segment = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s", poison=poison)
        got, faults = run_segment(segment, graph, x)
        assert faults == []
        results.append([a.tobytes() for a in got])
    assert results[0] == results[1]


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small()
    make = lambda: compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s")
    plain = make()
    monkeypatch.setenv("TILEWRIGHT_POISON", "1")
    assert make().poisoned and not plain.poisoned and make().object_code != plain.object_code


def all_in_one_place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    return [0] * len(lifetimes), max(l.nbytes for l in lifetimes)


def ending_early(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    return place([Lifetime(l.nbytes, l.first, max(l.last - 1, l.first)) for l in lifetimes])


@pytest.mark.parametrize("planner", [all_in_one_place, ending_early])
def test_wrong_plans_are_refused(monkeypatch: pytest.MonkeyPatch, planner: object) -> None:
    """Every compile proves its workspace."""
    monkeypatch.setattr(plan, "place", planner)
    with pytest.raises(CompileError, match="workspace broken: kernel"):
        compile_chain()


def test_too_many_in_place_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check refuses a result in the place of an operand that is read later."""
    compile_chain()

    def greedy(stages: Sequence[object], life: dict[Buffer, list[int]]) -> dict[Buffer, Buffer]:
        first, second, *_ = life
        return {second: first}

    monkeypatch.setattr(plan, "in_place", greedy)
    with pytest.raises(CompileError, match="workspace broken"):
        compile_chain()


def compile_chain() -> None:
    """Two tensors in memory, both read at the end."""
    n = helper.make_node
    nodes = [
        n("CumSum", ["x", "axis"], ["a"]),
        n("CumSum", ["a", "axis"], ["b"]),
        n("CumSum", ["b", "axis"], ["c"]),
        n("Add", ["a", "c"], ["y"]),
    ]
    check(nodes, {"x": np.ones((4, 40), np.float32)}, {"axis": np.array(1)}, ["y"])


def test_proof() -> None:
    """Bytes have one owner at a time: a buffer that was written over is read no more."""
    a, b = (Buffer(name, "u8", 10, "temp") for name in "ab")
    calls = [Call("k", [a]), Call("k", [b]), Call("k", [a])]
    uses = [Uses("one", [], [a]), Uses("two", [], [b]), Uses("three", [a], [])]
    assert prove(uses, calls, {a: (0, 10), b: (10, 20)}, 20) == [[], [(10, 20)], [(0, 10)]]
    with pytest.raises(CompileError, match=r"kernel 2 \(three\) reads buffer a of 10 u8"):
        prove(uses, calls, {a: (0, 10), b: (9, 19)}, 20)
    with pytest.raises(CompileError, match="outside its 19 bytes"):
        prove(uses, calls, {a: (0, 10), b: (10, 20)}, 19)
    with pytest.raises(CompileError, match="reads buffer b"):
        prove([Uses("one", [b], [a])], [Call("k", [a, b])], {a: (0, 10), b: (10, 20)}, 20)


def test_accesses() -> None:
    """Reads and writes of a function's parameters are found through derived pointers and called functions."""
    inner = "define void @in(ptr noalias %a, i64 %n, ptr %b) #0 {\n  store i8 1, ptr %b\n  ret void\n}"
    outer = "\n".join(
        [
            "define void @out(ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, ptr %p3) #0 {",
            "  %t1 = getelementptr inbounds float, ptr %p0, i64 4",
            "  %t2 = getelementptr i8, ptr %t1, i64 4",
            "  %t3 = load <4 x float>, ptr %t2, align 4",
            "  call void @in(ptr %p1, i64 3, ptr %p2)",
            "  call void @llvm.masked.store.v4f32.p0(<4 x float> %t3, ptr %p3, i32 4, <4 x i1> %m)",
            "}",
        ]
    )
    found = accesses("@out", {"@in": inner, "@out": outer})
    assert (found.read, found.written) == ({0}, {2, 3})
    with pytest.raises(CompileError, match="@unknown"):
        accesses("@out", {"@out": outer.replace("@in", "@unknown")})
