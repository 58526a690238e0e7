"""Tasks grouped into steps."""

from __future__ import annotations

import pytest

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.npu.blocks.tasks import verify_tasks
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.views import dense_view
from tilewright.compiler.stages.order import LayerStep, Step, group_steps, reads_elsewhere, split_at_borders
from tilewright.isa.program import ARENA_REGION


def layer(read: str, written: str) -> Layer:
    views = [dense_view(name, name, ARENA_REGION, (1, 4, 1, 1), 4) for name in (read, written)]
    return ElementLayer(written, "QLut", views[:1], views[1], Post(), source=written)


def node(read: str, written: str, op: str = "Relu") -> Node:
    return Node(op, [read], [written], {}, written)


def names(steps: list[Step]) -> list[str]:
    """Steps as words: N or C for where, then what they make."""
    made = lambda task: task.source if isinstance(task, Layer) else task.outputs[0]
    return [("N " if isinstance(s, LayerStep) else "C ") + " ".join(map(made, s.tasks)) for s in steps]


def test_few_changes_of_side() -> None:
    """Two chains CPU, NPU, CPU, one after the other in the tasks, take three steps together."""
    tasks = [node("x", "a"), layer("a", "b"), node("b", "c"), node("x", "d"), layer("d", "e"), node("e", "f")]
    assert names(group_steps(tasks, ["x"])) == ["C a d", "N b e", "C c f"]


def test_waits_for_every_writer() -> None:
    """Layers of a Concat write one buffer: nobody reads it before the last has written."""
    tasks = [layer("x", "a"), layer("x", "y"), node("y", "p"), layer("a", "y"), node("y", "q")]
    assert names(group_steps(tasks, ["x"])) == ["N a y y", "C p q"]


def test_operands_that_never_come() -> None:
    with pytest.raises(CompileError, match="'b' never finds its operands"):
        group_steps([node("a", "b")], ["x"])


def test_borders() -> None:
    tasks = [node("x", "a", "QuantizeLinear"), node("a", "b"), node("b", "c"), layer("c", "d"), layer("d", "e")]
    steps = group_steps(tasks, ["x"])
    assert names(split_at_borders(steps, {"b", "d"})) == ["C a", "C b", "C c", "N d", "N e"]


def test_kept_tensors_of_the_cpu() -> None:
    """The CPU ends a step after each; the NPU, which makes no floats of them, only after borders."""
    steps = group_steps([node("x", "a"), node("a", "b"), node("b", "c"), layer("c", "d"), layer("d", "e")], ["x"])
    assert names(split_at_borders(steps, (), {"a", "b", "d"})) == ["C a", "C b", "C c", "N d e"]


def test_reads_elsewhere() -> None:
    steps = group_steps([node("x", "a"), layer("a", "b"), layer("b", "c"), node("c", "d"), node("a", "e")], ["x"])
    assert names(steps) == ["C a e", "N b c", "C d"]
    assert reads_elsewhere(steps) == [{"a", "b", "c"}, {"a", "c", "x"}, {"a", "b", "x"}]


def test_verify_tasks() -> None:
    tasks = [node("x", "a"), layer("a", "b")]
    verify_tasks(tasks, {"x"}, ["b"])
    with pytest.raises(CompileError, match="reads 'a' before it is made"):
        verify_tasks(tasks[::-1], {"x"}, ["b"])
    with pytest.raises(CompileError, match="'c' is never made"):
        verify_tasks(tasks, {"x"}, ["c"])
