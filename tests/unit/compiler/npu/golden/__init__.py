"""Golden texts: the output of the compiler's back end for small graphs, one text file per case in this folder.

A case is a function that returns a graph. Its decorator names the stages of the compiler whose text is kept:

    @golden("schedule", "emit")
    def matmul() -> Graph: ...

Cases are in the modules `*_cases.py` of this folder. `test_golden.py` compares; `make golden` writes all texts again
(`python -m tests.unit.compiler.npu.golden matmul` only some). Read the difference before you commit it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS, NpuConfig

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Golden:
    """A golden case.

    Attributes:
        graph: builds the graph.
        stages: the stages whose text is kept.
        config: the machine.
        effort: effort of the compile.
    """

    graph: Callable[[], Graph]
    stages: tuple[str, ...]
    config: NpuConfig
    effort: int

    @property
    def path(self) -> Path:
        """The file of the kept text."""
        return FOLDER / f"{self.graph.__name__}.txt"

    def text(self) -> str:
        """Returns the text that the stages print now."""
        parts = []
        for stage in self.stages:
            printed: list[str] = []
            compile_graph(
                self.graph(), self.config, CompileOptions(effort=self.effort, print_after=(stage,)),
                out=lambda text, printed=printed: printed.append(str(text).rstrip("\n")),
            )  # fmt: skip
            parts.append("\n".join([f"== {stage} ==", *printed, ""]))
        return "\n".join(parts)


CASES: dict[str, Golden] = {}


def golden(
    *stages: str, config: NpuConfig = PRESETS["tiny"], effort: int = 1
) -> Callable[[Callable[[], Graph]], Callable[[], Graph]]:
    """Returns a decorator that registers a function that builds a graph as the golden case of its name."""

    def register(graph: Callable[[], Graph]) -> Callable[[], Graph]:
        if graph.__name__ in CASES:
            raise ValueError(f"two golden cases are called {graph.__name__!r}")
        CASES[graph.__name__] = Golden(graph, stages, config, effort)
        return graph

    return register


def cases() -> dict[str, Golden]:
    """Returns all cases by name, those of every `*_cases.py` in this folder."""
    for path in sorted(FOLDER.glob("*_cases.py")):
        importlib.import_module(f"{__name__}.{path.stem}")
    return CASES
