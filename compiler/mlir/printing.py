"""What `print_after` prints, in the form that `CompileOptions.print_form` says."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.mlir.graph_text import graph_text

#: The line by which MLIR's tools tell the modules of a text apart (`--split-input-file`).
SPLIT = "// -----"


def after_pass(name: str, graph: Graph, form: str) -> str:
    """The graph after a pass or rewrite of this name."""
    if form == "mlir":
        return f"{SPLIT}\n// after {name}\n{graph_text(graph)}".rstrip("\n")
    return f"--- after {name} ---\n{graph}"


def after_stage(name: str, text: str, form: str) -> str:
    """The text of a stage of this name. Only that of `tiles` is MLIR itself; that of others becomes comments."""
    if form != "mlir":
        return text
    lines = text.splitlines() if name == "tiles" else [f"// {line}".rstrip() for line in text.splitlines()]
    return "\n".join([SPLIT, f"// after {name}", *lines])
