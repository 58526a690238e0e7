"""IF: both branches run, and Where chooses; a known condition imports its branch only."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import handles, import_op
from tilewright.compiler.importer.tflite.schema import FileModel, FileOp
from tilewright.compiler.importer.tflite.state_table import Variables
from tilewright.compiler.limits import check_nodes


@handles("IF")
def if_(b: TfliteBuilder, op: FileOp) -> None:
    if b.variables is None:
        raise b.refuse("which branch is taken is known when the model runs only")
    condition = b.value(0)
    taken = b.graph.const(condition)
    sides = [op.option(f"{side}SubgraphIndex", 0) for side in ("Then", "Else")]
    if taken is not None:
        sides = [sides[0 if bool(taken.reshape(-1)[0]) else 1]]
    if b.graph.tensor(condition).size != 1:
        raise b.damaged(f"condition {b.source(0).name!r} has shape {list(b.shape(0))}; one value is needed")
    results = [_inlined(b, op, b.model.branches[number]) for number in sides]
    if len(sides) == 2:
        chooses = b.reshaped(condition, [1])
    for k in range(len(op.outputs)):
        names = [result[k] for result in results]
        shapes = [b.graph.tensor(name).shape for name in names]
        if shapes[0] != shapes[-1]:
            either = f"{list(shapes[0])} or {list(shapes[1])}"
            raise b.refuse(f"output {b.target(k).name!r} is {either}, by the branch taken; one shape is accepted")
        value = names[0]
        if len(names) == 2 and names[0] != names[1]:
            value = b.onnx("Where", [chooses, *names])
            if shapes[0] == ():
                value = b.reshaped(value, [])
        b.onnx("Identity", [value], output=b.result(shapes[0], k=k))


def _inlined(b: TfliteBuilder, op: FileOp, branch: FileModel) -> list[str]:
    """Emits the operators of a branch into the graph; returns its results, in the file's order of axes."""
    given = op.inputs[1:]
    if len(given) != len(branch.inputs) or len(op.outputs) != len(branch.outputs):
        raise b.damaged(f"a branch has {len(branch.inputs)} inputs and {len(branch.outputs)} outputs")
    tensors = list(branch.tensors)
    for k, inner in enumerate(branch.inputs):
        outer = b.source(k + 1)
        if outer.data is not None:
            tensors[inner] = replace(tensors[inner], data=outer.data, quant=tensors[inner].quant or outer.quant)
    inside = TfliteBuilder(b.graph, replace(branch, tensors=tensors), b.checked)
    inside.variables = Variables({}, FileModel([]))  # variables of a branch are refused: it may not be taken
    for k, inner in enumerate(branch.inputs):
        if b.source(k + 1).data is None:
            b.value(k + 1)
            inside.forms[inner] = b.forms[b.source(k + 1).index]
    check_nodes("the graph", len(b.graph.nodes) + len(branch.ops))  # branches in branches may be many
    for operator in branch.ops:
        import_op(inside, operator)
    return [inside.form_of(inside.model.tensors[i], FILE) for i in branch.outputs]
