"""The output of `print_after`, in the form that `CompileOptions.print_form` says.

MLIR takes all that a compilation prints as one text: modules, functions of tile programs, and comments.
"""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.mlir.graph_text import graph_text


def after_pass(name: str, graph: Graph, form: str) -> str:
    """The graph after a pass or rewrite of this name."""
    if form == "mlir":
        return f"// after {name}\n{graph_text(graph)}".rstrip("\n")
    return f"--- after {name} ---\n{graph}"


def after_stage(name: str, text: str, form: str) -> str:
    """The text of a stage of this name. Only that of `tiles` is MLIR itself; that of others becomes comments."""
    if form != "mlir":
        return text
    lines = text.splitlines() if name == "tiles" else [f"// {line}".rstrip() for line in text.splitlines()]
    return "\n".join([f"// after {name}", *lines])
