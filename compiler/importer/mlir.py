"""Imports MLIR text: TOSA programs, and graphs that Tilewright wrote (`tilewright.compiler.mlir`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx

from tilewright.common import store
from tilewright.common.installation import install_extra
from tilewright.common.text import one_line
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.mlir_graph import is_graph, read_graph
from tilewright.compiler.importer.onnx.loader import import_errors
from tilewright.compiler.importer.tosa import import_tosa, tosa_model

_READERS = ("iree.compiler.ir", "torch_mlir.ir")  # packages whose MLIR has TOSA


def import_mlir(
    source: str | Path | bytes,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    staged: bool = False,
) -> Graph:
    """Reads a TOSA program or a graph.

    Args:
        source: file name, the text itself (text has line breaks), or bytecode.
        shapes, constants, staged: as for `import_tosa`.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
        StagingError: loops that end by values of the inputs.
    """
    text, name = mlir_text(source), mlir_name(source)
    with import_errors(name):
        if not is_graph(text):
            return import_tosa(text, name, shapes, constants, staged)
        if shapes or constants:
            raise UnsupportedError("shapes and inputs of a graph that Tilewright wrote are fixed")
        return read_graph(text)


def mlir_model(source: str | Path | bytes, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """Reads a TOSA program as an ONNX model, of which parts are compiled while it runs.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
    """
    text, name = mlir_text(source), mlir_name(source)
    with import_errors(name):
        if is_graph(text):
            raise UnsupportedError("a graph that Tilewright wrote is one program, which `compile_program` makes")
        return tosa_model(text, name, shapes)


def mlir_name(source: str | Path | bytes) -> str:
    """The name of the file, "model" for text and bytecode."""
    named = isinstance(source, Path) or (isinstance(source, str) and "\n" not in source)
    return Path(str(source)).name if named else "model"


def mlir_text(source: str | Path | bytes) -> str:
    """MLIR as text, given as a file name, text, or bytecode, which the MLIR of an installed package reads.

    Raises:
        CompileError: no such file, damaged. UnsupportedError: bytecode, and no package that reads it.
    """
    if isinstance(source, str) and "\n" in source:
        return source
    if isinstance(source, bytes):
        data, name = source, "model"
    else:
        try:
            data, name = store.read(source), Path(source).name
        except OSError as error:
            raise CompileError(f"{source}: cannot be read: {error.strerror or error}") from error
    if data[:4] == b"ML\xefR":
        return _decoded(data, name)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CompileError(f"{name}: damaged MLIR text: byte {error.start} is no UTF-8") from error


def _decoded(data: bytes, name: str) -> str:
    """Bytecode as text, by the first package that is installed."""
    for package in _READERS:
        try:
            ir = import_module(package)
        except ImportError:
            continue
        with ir.Context() as context:
            context.allow_unregistered_dialects = True
            try:
                return str(ir.Module.parse(data).operation.get_asm(print_generic_op_form=True))
            except (ir.MLIRError, ValueError) as error:
                why = one_line(error)
                raise CompileError(f"{name}: MLIR bytecode that {package.split('.')[0]} cannot read: {why}") from error
    raise UnsupportedError(
        f"{name}: MLIR bytecode, which IREE or torch-mlir reads: {install_extra('iree')}; or iree-opt writes it as text"
    )
