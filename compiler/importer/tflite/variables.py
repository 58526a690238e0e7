"""Variables: values that live from one run to the next. Each becomes an input of the graph, with its value at the start
of a run, and an output, with its value at the end; the runtime passes it back.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node, State, Tensor
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import handles, import_op
from tilewright.compiler.importer.tflite.schema import FileModel, FileOp
from tilewright.compiler.importer.tflite.state_table import Key, Variable, Variables
from tilewright.compiler.onnx.onnx_ops import OPSET
from tilewright.compiler.passes.fold.fold_constants import fold_constants


def initial_values(model: FileModel) -> dict[Key, np.ndarray]:
    """The values that the graphs of CALL_ONCE assign. Raises CompileError where they cannot be known."""
    found: dict[Key, np.ndarray] = {}
    for number, first in model.first.items():
        graph = Graph(f"graph {number}", OPSET)
        b = TfliteBuilder(graph, first, checked=True)
        b.variables = variables = Variables({}, first)
        for op in first.ops:
            import_op(b, op)
        values = {key: b.form_of(v.value, FILE) for key, v in variables.by_key.items() if v.value is not None}
        graph.outputs += dict.fromkeys(values.values())
        fold_constants(graph)
        for key, name in values.items():
            data = graph.const(name)
            if data is None:
                raise CompileError(f"variable {variables.by_key[key].label!r} begins with a value that is no constant")
            found[key] = data
    return found


def add_states(b: TfliteBuilder) -> None:
    """Makes the values of the variables after a run outputs of the graph."""
    for variable in b.variables.by_key.values() if b.variables is not None else ():
        if not variable.begin or variable.value is None:
            continue
        assert variable.initial is not None
        begin, end = b.graph.tensor(variable.begin), b.graph.tensor(b.form_of(variable.value, FILE))
        if (begin.shape, begin.dtype) != (end.shape, end.dtype):
            raise CompileError(
                f"variable {variable.label!r} begins a run as {begin.dtype}{list(begin.shape)} and ends it as "
                f"{end.dtype}{list(end.shape)}"
            )
        name = f"{variable.label}.next"
        name = b.graph.unique(name) if name in b.graph.tensors or name in b.taken else name
        b.graph.add(Tensor(name, end.shape, end.dtype, None, end.quant))
        b.graph.nodes.append(Node("Identity", [end.name], [name], {}, name))
        b.graph.outputs.append(name)
        b.graph.states.append(State(variable.label, variable.begin, name, variable.initial))


def _variable(b: TfliteBuilder) -> Variable:
    """The variable of the op's handle. Raises UnsupportedError if it is none of the graph's."""
    found = None if b.variables is None else b.variables.by_handle.get(b.source(0).index)
    if found is None:
        raise b.refuse(f"{b.source(0).name!r} is a state that lives from one run to the next")
    return found


@handles("VAR_HANDLE", "CALL_ONCE")
def stateful(b: TfliteBuilder, op: FileOp) -> None:
    if b.variables is None:
        raise b.refuse("a state that lives from one run to the next")


@handles("READ_VARIABLE")
def read_variable(b: TfliteBuilder, op: FileOp) -> None:
    variable, t = _variable(b), b.target()
    if variable.value is not None:
        before = variable.value
        if t.dtype != before.dtype or (t.quant is not None and not t.quant.same_as(before.quant)):
            raise b.refuse(f"{t.name!r} and what was assigned to {variable.label!r} are of different types or scales")
        b.form_of(before, FILE)
        b.forms[t.index] = b.forms[before.index]
        return
    if variable.initial is None:
        raise b.refuse(f"variable {variable.label!r} is read before it has a value")
    if t.dtype != variable.initial.dtype or t.shape != variable.initial.shape:
        raise b.damaged(f"variable {variable.label!r} is {variable.initial.dtype}{list(variable.initial.shape)}")
    name = b.result(t.shape)
    if variable.assigned:
        b.graph.inputs.append(name)
        variable.begin = name
    else:
        b.graph.tensor(name).data = variable.initial
    variable.value = t


@handles("ASSIGN_VARIABLE")
def assign_variable(b: TfliteBuilder, op: FileOp) -> None:
    variable, t = _variable(b), b.source(1)
    b.form_of(t, FILE)
    variable.value = t
