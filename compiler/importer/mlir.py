"""Imports MLIR text: TOSA programs, and graphs that Tilewright wrote (`tilewright.compiler.mlir`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright.common import store
from tilewright.common.text import one_line
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.mlir_graph import is_graph, read_graph
from tilewright.compiler.importer.tosa import import_tosa


def import_mlir(source: str | Path, shapes: dict[str, Sequence[int]] | None = None) -> Graph:
    """Reads a TOSA program or a graph.

    Args:
        source: file name, or the text itself (text has line breaks).
        shapes: not accepted: the shapes of MLIR text are fixed.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
    """
    text, name = _text(source)
    try:
        if shapes:
            raise UnsupportedError("shapes are fixed in MLIR; export the model with other shapes")
        return read_graph(text) if is_graph(text) else import_tosa(text, name)
    except CompileError as error:
        raise type(error)(f"{name}: {one_line(error)}") from error


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return source, "model"
    try:
        data = store.read(source)
    except OSError as error:
        raise CompileError(f"{source}: cannot be read: {error.strerror or error}") from error
    name = Path(source).name
    if data[:4] == b"ML\xefR":
        raise UnsupportedError(f"{name}: MLIR bytecode; iree-opt or mlir-opt without --emit-bytecode writes it as text")
    try:
        return data.decode(), name
    except UnicodeDecodeError as error:
        raise CompileError(f"{name}: damaged MLIR text: byte {error.start} is no UTF-8") from error
