"""Checks equations of Einsum before onnx reads them: its inference of shapes never ends with some malformed ones."""

from __future__ import annotations

import itertools
import re

import onnx

from tilewright.compiler.errors import CompileError
from tilewright.compiler.onnx.onnx_graphs import all_nodes

_TERM = rb"[A-Za-z]*(?:\.\.\.[A-Za-z]*)?"
_EQUATION = re.compile(rb"%b(?:,%b)*(?:->%b)?" % (_TERM, _TERM, _TERM))


def check_equations(model: onnx.ModelProto) -> None:
    """Checks the equations in a model, its functions too.

    Raises:
        CompileError: one has something else than letters, "..." once for each operand, "," between them, and "->".
    """
    for node in all_nodes(itertools.chain(model.graph.node, *(function.node for function in model.functions))):
        if node.op_type != "Einsum":
            continue
        for attribute in node.attribute:
            if attribute.name == "equation" and not _EQUATION.fullmatch(attribute.s.replace(b" ", b"")):
                text = attribute.s.decode("utf-8", "replace")
                raise CompileError(
                    f"Einsum {node.name!r}: equation {text!r}; accepted are letters and one '...' for each operand, "
                    "',' between operands, and '->' before the result"
                )
