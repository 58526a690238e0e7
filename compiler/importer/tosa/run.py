"""Imports the nodes that hold TOSA's operations."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node, Tensor, needed_nodes
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.importer.tosa.builder import HANDLERS, TosaBuilder
from tilewright.compiler.importer.tosa.model import DOMAIN, RUN, run_of
from tilewright.compiler.importer.tosa.reading import unknown_operation
from tilewright.compiler.limits import check_nodes

#: Attributes that became operands in TOSA 1.0, beside the zero points.
_OLDER = ("quantization_info", "pad_const")


@handles(RUN, domain=DOMAIN)
def run(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Emits the operations, and an Identity for each value that is read outside; drops what is not needed."""
    program, graph = run_of(node.attrs["run"]), builder.graph
    before, graph.nodes = graph.nodes, []
    b = TosaBuilder(graph, program)
    for number, name in zip(program.reads, node.inputs):
        b.take(number, name)
    for op in program.ops:
        b.op = op
        check_nodes("the graph", len(before) + len(graph.nodes))
        handler = HANDLERS.get(op.name)
        if handler is None:
            raise unknown_operation(op.label, op.name, tuple(HANDLERS))
        for key in op.attrs:
            if key.endswith("_zp") or key in _OLDER:
                raise b.refuse(f"{key} is an attribute of TOSA before 1.0; operands are accepted")
        handler(b, op)
    for number, name in zip(program.makes, node.outputs):
        made = graph.tensor(b.form_of(number))
        graph.add(Tensor(name, made.shape, made.dtype, made.data, made.quant))
        if made.data is None:
            graph.nodes.append(Node("Identity", [made.name], [name], {}, name))
    needed = set(node.outputs)
    kept = needed_nodes(graph.nodes, needed)
    for name in {name for made in graph.nodes for name in made.outputs} - needed:
        del graph.tensors[name]
    graph.nodes = before + kept
    emitted = {label for made in kept for label in made.origin}
    notes = [f"{label}: {why}" for label, why in b.reasons.items() if label in emitted]
    graph.notes += [note for note in notes if note not in graph.notes]
