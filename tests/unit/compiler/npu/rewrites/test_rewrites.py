"""The table of rewrites: each is printed and verified like a pass, and is in the file of its name."""

from __future__ import annotations

import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu import rewrites
from tilewright.compiler.npu.rewrites import REWRITES, Rewrite, run_rewrites
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import NpuConfig, preset

BASE = preset("base")


def folded() -> Graph:
    """Returns a graph with a SpaceToDepth between two convolutions."""
    net = Net()
    x = net.conv(net.plane(16, 6), 16)
    return net.done(net.conv(net.move("SpaceToDepth", [x], (1, 64, 3, 3), {"blocksize": 2}), 8))


def test_each_is_a_file_of_its_name() -> None:
    assert len({rewrite.name for rewrite in REWRITES}) == len(REWRITES)
    for rewrite in REWRITES:
        assert rewrite.doc and rewrite.run.__name__ == rewrite.name == rewrite.run.__module__.rpartition(".")[2]


def test_print_after() -> None:
    printed: list[str] = []
    compile_graph(folded(), BASE, CompileOptions(print_after=("lower_copies", "lower_moves")), out=printed.append)
    before, after = printed
    assert before.startswith("--- after lower_copies ---") and "SpaceToDepth(" in before
    assert after.startswith("--- after lower_moves ---") and "SpaceToDepth(" not in after and "moves=True" in after
    printed.clear()
    run_rewrites(folded(), BASE, ["all"], printed.append)
    assert len(printed) == len(REWRITES)


def test_a_broken_graph_names_the_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    def undo(graph: Graph, config: NpuConfig) -> None:
        del graph.nodes[0]

    monkeypatch.setattr(rewrites, "REWRITES", (Rewrite("undo", undo, ""),))
    with pytest.raises(CompileError, match="graph broken after undo: "):
        run_rewrites(folded(), BASE)
