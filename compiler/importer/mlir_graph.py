"""Reads graphs that `graph_text` wrote, also after other tools of MLIR printed them anew."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tilewright.common.text import suggest
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import QUANTIZED_OPS, DroppedChannels, Graph, Node, Quant, State, Tensor
from tilewright.compiler.graph.ops.kernel import QKernel
from tilewright.compiler.importer.tosa.reading import parse
from tilewright.compiler.limits import check_nodes, check_shape
from tilewright.compiler.mlir.attributes import array_of, type_of, value_of
from tilewright.compiler.mlir.graph_text import FORMAT, natural_order
from tilewright.compiler.onnx.onnx_ops import infer, schema_of

_MARK = re.compile(r"tilewright\.format\s*=\s*(\d+)")
_ONNX = "tilewright.onnx."
#: Those that text can say; a kernel of the user's is no text.
_QUANTIZED = {f"tilewright.{name.lower()}": op for name, op in QUANTIZED_OPS.items() if op is not QKernel}


def is_graph(text: str) -> bool:
    """True for text of the dialect `tilewright`."""
    return _MARK.search(text) is not None


def read_graph(text: str) -> Graph:
    """The graph in a text.

    Raises:
        CompileError: damaged text, with the line. UnsupportedError: another version of the dialect.
    """
    found = _MARK.search(text)
    if found is None:
        raise CompileError("no module with the attribute tilewright.format")
    if int(found[1]) != FORMAT:
        line = text[: found.start()].count("\n") + 1
        raise UnsupportedError(f"line {line}: tilewright.format {found[1]}; {FORMAT} is accepted")
    module, lines = parse(text, ())
    reader = _Reader(lines)
    try:
        functions = [op for op in module.walk() if op.name == "func.func" and op.sym_name.data == "main"]
        if len(functions) != 1 or len(functions[0].body.blocks) != 1:
            raise CompileError("a module with one func.func @main of one block is accepted")
        reader.function(functions[0])
        return reader.finished()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        where = f"line {reader.line}: " if reader.line else ""
        raise CompileError(f"{where}{type(error).__name__}: {error}: attributes as the compiler writes them") from error


class _Reader:
    """Builds one graph.

    Attributes:
        line: line of the operation that is read, 0 outside of operations.
        names: name of the tensor by value of the text, "" for `none`.
    """

    def __init__(self, lines: dict[int, int]) -> None:
        self.lines = lines
        self.attributes: dict[str, Any] = {}
        self.line = 0
        self.names: dict[Any, str] = {}
        self.invented: set[str] = set()
        self.graph = Graph()

    def function(self, function: Any) -> None:
        """Reads arguments, constants, nodes and results."""
        self.attributes = {k: value_of(v) for k, v in function.parent_op().attributes.items()}
        self.graph = Graph(str(self.attributes["tilewright.name"]), int(self.attributes["tilewright.opset"]))
        block = function.body.blocks[0]
        given = function.properties.get("arg_attrs")
        described = [_without_prefix(value_of(d)) for d in given.data] if given is not None else []
        if len(described) != len(block.args):
            raise CompileError(f"{len(block.args)} arguments, {len(described)} names for them")
        for value, entries in zip(block.args, described):
            self.graph.inputs.append(self._tensor(value, entries))
        ops = list(block.ops)
        check_nodes("the graph", len(ops))
        for op in ops:
            self.line = self.lines.get(id(op), 0)
            name = op.op_name.data if op.name == "builtin.unregistered" else op.name
            if name == "func.return":
                self.graph.outputs = [self.names[value] for value in op.operands]
            elif name == "tilewright.none":
                self.names[op.results[0]] = ""
            else:
                self._node(name, op)
        self.line = 0

    def finished(self) -> Graph:
        """The graph with what the module says of it, checked."""
        graph = self.graph
        found = {k.removeprefix("tilewright."): v for k, v in self.attributes.items()}
        order = found.get("order", ())
        if order:
            natural = natural_order(graph)
            if sorted(order) != list(range(len(natural))):
                raise CompileError(f"tilewright.order is no order of {len(natural)} tensors")
            graph.tensors = {natural[k]: graph.tensors[natural[k]] for k in order}
        graph.states = [State(**entries) for entries in found.get("states", [])]
        graph.limits = {e["name"]: (e["low"], e["high"]) for e in found.get("limits", [])}
        graph.metadata = {e["key"]: e["text"] for e in found.get("metadata", [])}
        graph.floats = {e["key"]: e["text"] for e in found.get("floats", [])}
        graph.notes = list(found.get("notes", []))
        graph.dropped = DroppedChannels(**found["dropped"]) if "dropped" in found else None
        graph.resume(int(found["serial"]), self.invented)
        graph.verify("import")
        return graph

    def _node(self, name: str, op: Any) -> None:
        entries = {k: value_of(v) for k, v in {**op.properties, **op.attributes}.items() if k != "op_name__"}
        described = entries.pop("tilewright.results", [])
        if len(described) != len(op.results):
            raise CompileError(f"line {self.line}: {name}: {len(op.results)} results, {len(described)} names for them")
        outputs = [self._tensor(value, d) for value, d in zip(op.results, described)]
        if name == "tilewright.constant":
            tensor = self.graph.tensor(outputs[0])
            tensor.data = array_of(entries["value"], tensor.shape, tensor.dtype, self.line)
            return
        label, origin = entries.pop("tilewright.name", ""), tuple(entries.pop("tilewright.origin", []))
        inputs = [self.names[value] for value in op.operands]
        if name in _QUANTIZED:
            node = Node.of(_QUANTIZED[name](**entries), inputs, outputs, label, origin)
        elif name.startswith(_ONNX):
            node = Node(name.removeprefix(_ONNX), inputs, outputs, entries, label, origin)
            self._check(node)
        else:
            known = (*_QUANTIZED, "tilewright.constant", "tilewright.none")
            raise UnsupportedError(f"line {self.line}: {name} is not of this dialect{suggest(name, known)}")
        self.graph.nodes.append(node)

    def _check(self, node: Node) -> None:
        """Raises CompileError if results of an ONNX op have other types than ONNX's inference finds."""
        schema = schema_of(node.op)
        if schema is None:
            return
        attrs = {k: v for k, v in node.attrs.items() if k in schema.attributes}  # without marks of the compiler
        plain = Node(node.op, node.inputs, node.outputs, attrs, node.name)
        for name, (shape, dtype) in zip(node.outputs, infer(plain, self.graph.operands(node))):
            if not name:
                continue
            tensor = self.graph.tensor(name)
            if shape not in (None, tensor.shape) or dtype not in (None, tensor.dtype):
                found = f"{tensor.dtype}{list(tensor.shape)}"
                wanted = f"{dtype or tensor.dtype}{list(tensor.shape if shape is None else shape)}"
                raise CompileError(f"line {self.line}: {node.op}: its result {name!r} is {found}, not {wanted}")

    def _tensor(self, value: Any, entries: dict[str, Any]) -> str:
        """Adds the tensor of a value; returns its name."""
        if str(value.type) == "none":
            self.names[value] = ""
            return ""
        name = entries["name"]
        if not isinstance(name, str) or not name or name in self.graph.tensors:
            raise CompileError(f"line {self.line}: a tensor called {name!r}; names are needed, each once")
        shape, dtype = type_of(value.type, self.line)
        check_shape("tensor", name, shape)
        self.graph.add(Tensor(name, shape, dtype, None, _quant(entries)))
        if entries.get("invented"):
            self.invented.add(name)
        self.names[value] = name
        return str(name)


def _without_prefix(entries: dict[str, Any]) -> dict[str, Any]:
    return {k.removeprefix("tilewright."): v for k, v in entries.items()}


def _quant(entries: dict[str, Any]) -> Quant | None:
    """The quantisation in the description of a tensor. Raises ValueError for one of other types."""
    if "scale" not in entries:
        return None
    scale, zero_point = entries["scale"], entries["zero_point"]
    if isinstance(scale, np.float32) and isinstance(zero_point, int):
        return Quant.of(scale, zero_point)
    if scale.dtype != np.float32 or zero_point.dtype != np.int32 or scale.shape != zero_point.shape or scale.ndim != 1:
        raise ValueError("scale and zero point must be f32 and an integer, or tensors of f32 and i32 with one axis")
    return Quant(scale, zero_point, int(entries["axis"]))


__all__ = ["is_graph", "read_graph"]
