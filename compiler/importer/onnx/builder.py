"""The graph under construction: emits normalised nodes, infers their types and folds shape arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.compiler.errors import CompileError, StagingError, UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.ops.kernel import BY_A_KERNEL
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.limits import (
    check_attributes,
    check_indexed,
    check_nodes,
    check_operands,
    check_positions,
    check_shape,
)
from tilewright.compiler.onnx.functions import OWN_OPS, function_body, own_types
from tilewright.compiler.onnx.onnx_ops import (
    OPSET,
    UNTRUSTED,
    attribute_value,
    default_attributes,
    dense_of,
    evaluate,
    infer,
    numpy_dtype,
    schema_of,
)

_FOLD_INTS = 1 << 14  # elements; shape arithmetic is never larger
_FOLD_FLOATS = 64
_DECIDING = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,),
    "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "HammingWindow": (0,), "HannWindow": (0,), "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "OneHot": (1,), "Range": (0, 1, 2), "STFT": (1, 3), "Tile": (1,), "TopK": (1,),
    "Trilu": (1,),
}  # fmt: skip
"""Inputs whose values decide shapes or how the kernel is written, of ops whose handlers do not request them."""
_NEVER_FOLDED = {"QuantizeLinear", "DequantizeLinear", "RandomNormal", "RandomUniform", "RandomNormalLike",
                 "RandomUniformLike", "Multinomial", "Bernoulli", *UNTRUSTED}  # fmt: skip


class OnnxBuilder:
    """A graph under construction from the nodes of an ONNX model.

    Args:
        graph: receives tensors and nodes; its opset is `onnx_node.OPSET`.
        file: name of the model, first in every message.
        versions: opset version by domain.
        handlers: importers of ops by (domain, op).
        staged: values only known at run time may be left to the host, so nothing large is unrolled or run in vain.

    Attributes:
        sequences: sequences and optionals whose structure is known at compile time, as lists of tensor names.
    """

    def __init__(
        self, graph: Graph, file: str, versions: dict[str, int], handlers: Handlers, staged: bool = False
    ) -> None:
        self.graph = graph
        self.file = file
        self.versions = versions
        self.handlers = handlers
        self.staged = staged
        self.sequences: dict[str, list[str]] = {}
        self.emitted = 0
        self.current = OnnxNode("", [], [])
        self.scope: dict[str, str] | None = None  # inside a subgraph: its names -> names of the graph

    # --- queries of handlers ---

    def tensor(self, name: str) -> Tensor:
        """The tensor of a name already made. Raises CompileError for an unknown name, StagingError for a sequence."""
        found = self.graph.tensors.get(name)
        if found is None and name in self.sequences:
            raise StagingError(f"{self.current.label} reads {name!r}, a sequence; it takes tensors")
        if found is None:
            raise CompileError(
                f"{self.current.label} reads {name!r}, which no node, input or initialiser makes before it"
            )
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensor(name).shape

    def const(self, name: str) -> np.ndarray | None:
        """The value of a compile-time constant, None for other tensors and missing inputs."""
        return self.tensor(name).data if name else None

    def need_const(self, name: str, what: str) -> np.ndarray:
        """The value of a constant that the op needs at compile time. Raises StagingError for other tensors."""
        value = self.const(name)
        if value is None:
            text = f"{self.current.label}: {what} {name!r} must be a constant at compile time"
            raise StagingError(text, (name,))
        return value

    def constant(self, stem: str, value: Any, dtype: Any = None) -> str:
        """Adds a constant and returns its name."""
        return self.graph.constant(stem or "const", np.asarray(value, dtype))

    def ints(self, stem: str, value: Sequence[int]) -> str:
        return self.constant(stem, list(value), np.int64)

    def fresh(self, stem: str = "") -> str:
        """An unused tensor name."""
        return self.graph.unique(stem or self.current.output(0) or "tmp")

    # --- emitting ---

    def emit(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, attrs: dict[str, Any] | None = None
    ) -> str:
        """Appends a node in the normal form and returns its first output.

        Args:
            outputs: tensor names; None makes one fresh name.
            attrs: given attributes; ONNX's defaults are filled in, None values dropped.
        """
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        names = [self.fresh()] if outputs is None else list(outputs)
        while len(names) > 1 and not names[-1]:
            names.pop()
        what = f"{op} {self.current.name or names[0]!r}"
        self.emitted += 1
        check_nodes(what, self.emitted)
        check_operands(what, max(len(inputs), len(names)))
        check_attributes(what, attrs or {})
        if op == "MaxPool" and len(names) > 1 and attrs:
            check_indexed(what, attrs.get("kernel_shape") or ())
        for index in _DECIDING.get(op, ()):
            if index < len(inputs) and inputs[index]:
                self.need_const(inputs[index], schema_of(op).inputs[index].name)  # type: ignore[union-attr]
        full = {**default_attributes(op), **(attrs or {})}
        node = Node(
            op,
            inputs,
            names,
            {k: v for k, v in full.items() if v is not None},
            self.current.name or names[0],
            (self.current.name or self.current.output(0),),
        )
        tensors = [self.tensor(i) if i else None for i in inputs]
        self._type_outputs(node, tensors)
        if op == "Identity" and tensors[0] is not None and names[0] in self.graph.tensors:
            self.graph.tensors[names[0]].quant = tensors[0].quant
        return names[0]

    def bind(self, value: str, name: str) -> None:
        """Gives a tensor or sequence a second name."""
        if value in self.sequences:
            self.sequences[name] = self.sequences[value]
        else:
            self.emit("Identity", [value], [name])

    def _type_outputs(self, node: Node, inputs: list[Tensor | None]) -> None:
        for name in node.outputs:
            if name in self.graph.tensors:
                raise CompileError(f"{node.op} {node.name!r} makes {name!r}, which exists already")
        known = [t.data for t in inputs if t is not None]
        constant = all(d is not None for d in known) and node.op not in _NEVER_FOLDED and node.op not in OWN_OPS
        if node.op in ("Shape", "Size"):
            source = self.tensor(node.inputs[0])
            known_shape = np.broadcast_to(np.False_, source.shape)  # takes no memory
            constant, inputs = True, [Tensor("", source.shape, np.dtype(np.bool_), known_shape)]
        types = own_types(node, inputs) or infer(node, inputs)
        values = self._folded(node, inputs) if constant and self._small(types) else None
        if values is not None:
            for name, value in zip(node.outputs, values):
                if name:
                    self.graph.add(Tensor(name, tuple(value.shape), value.dtype, value))
            return
        if any(name and (shape is None or dtype is None) for name, (shape, dtype) in zip(node.outputs, types)):
            body = function_body(node, inputs)
            if body is not None:
                self.expand(node, body)
                return
        for name, (shape, dtype) in zip(node.outputs, types):
            if not name:
                continue
            if shape is None or dtype is None:
                raise StagingError(
                    f"{node.op} {node.name!r}: the shape of its output {name!r} cannot be known at compile time; "
                    "every shape must follow from the input shapes and constants"
                )
            check_shape(f"{node.op} {node.name!r}: output", name, shape)
            check_positions(f"{node.op} {node.name!r}", node.op, shape)
            self.graph.add(Tensor(name, shape, dtype))
        outputs = [self.graph.tensors[name] for name in node.outputs if name]
        if any(t.size for t in outputs):
            self.graph.nodes.append(node)
            return
        for tensor in outputs:  # without elements there is nothing to compute
            tensor.data = np.empty(tensor.shape, tensor.dtype)

    def _folded(self, node: Node, inputs: list[Tensor | None]) -> list[np.ndarray] | None:
        """The values of a node of constants; None where onnx's evaluator lacks something that the kernels may have."""
        try:
            return evaluate(node, [None if t is None else t.data for t in inputs])
        except CompileError:
            return None

    def expand(self, node: Node, body: onnx.FunctionProto) -> None:
        """Emits the nodes of a function op's definition instead of the op."""
        outer, versions = self.scope, self.versions
        self.scope = dict(zip(body.input, [*node.inputs, *[""] * len(body.input)]))
        self.versions = {**versions, **{o.domain: o.version for o in body.opset_import}}
        for proto in body.node:
            self.node(proto)
        scope, self.scope, self.versions = self.scope, outer, versions
        for inner, name in zip(body.output, node.outputs):
            if name:
                self.bind(scope[inner], name)

    def _small(self, types: list[tuple[tuple[int, ...] | None, np.dtype | None]]) -> bool:
        for shape, dtype in types:
            if shape is None or dtype is None:
                continue
            if int(np.prod(shape, dtype=object)) > (_FOLD_INTS if dtype.kind in "iub" else _FOLD_FLOATS):
                return False
        return True

    # --- reading the model ---

    def initializer(self, proto: onnx.TensorProto) -> None:
        """Adds an initialiser as a constant. Raises CompileError where its data does not fit its shape."""
        what = f"initialiser {proto.name!r}"
        numpy_dtype(proto.data_type, what)
        try:
            value = numpy_helper.to_array(proto)
        except Exception as error:
            raise CompileError(f"{what} is damaged: {' '.join(str(error).split())}") from error
        self.graph.add(Tensor(proto.name, tuple(value.shape), value.dtype, value))

    def node(self, proto: onnx.NodeProto) -> None:
        """Imports one node through its handler, or unchanged where the op has had one form in all opsets."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attrs = {a.name: attribute_value(a) for a in proto.attribute}
        node = OnnxNode(
            proto.op_type,
            self._scoped_inputs(proto.input),
            self._scoped_outputs(proto.output),
            attrs,
            proto.name,
            domain,
            self.versions.get(domain, 1),
        )
        outer, self.current = self.current, node
        for name in node.inputs:
            if name and name not in self.sequences:
                self.tensor(name)
        handler = self.handlers.get((domain, node.op))
        if handler is not None:
            handler(self, node)
        elif domain:
            known = sorted(op for d, op in self.handlers if d == domain)
            raise UnsupportedError(
                f"{node.label} of domain {domain!r} is not supported; supported: {', '.join(known)}; {BY_A_KERNEL}"
            )
        else:
            self.passthrough(node)
        self.current = outer

    def _scoped_inputs(self, names: Sequence[str]) -> list[str]:
        return list(names) if self.scope is None else [self.scope.get(n, n) for n in names]

    def _scoped_outputs(self, names: Sequence[str]) -> list[str]:
        if self.scope is None:
            return list(names)
        for name in names:
            if name:
                self.scope[name] = self.fresh(name)
        return [self.scope[n] if n else "" for n in names]

    def inline(self, body: onnx.GraphProto, arguments: Sequence[str]) -> list[str]:
        """Emits a subgraph's nodes here and returns the names of its outputs.

        Args:
            arguments: tensors for the subgraph's inputs; other names are those of the enclosing graph.
        """
        outer, self.scope = self.scope, dict(self.scope or {})
        self.scope.update(zip((i.name for i in body.input), arguments))
        for proto in body.initializer:
            copy = onnx.TensorProto()
            copy.CopyFrom(proto)
            copy.name = self.scope[proto.name] = self.fresh(proto.name)
            self.initializer(copy)
        for node in body.node:
            self.node(node)
        outputs = [self.scope.get(o.name, o.name) for o in body.output]
        self.scope = outer
        return outputs

    def sparse_initializers(self, protos: Sequence[onnx.SparseTensorProto]) -> None:
        """Adds sparse initialisers as dense constants."""
        for proto in protos:
            dense = dense_of(proto)
            self.graph.add(Tensor(proto.values.name, dense.shape, dense.dtype, dense))

    def reshaped(self, x: str, shape: Sequence[int], outputs: Sequence[str] | None = None) -> str:
        """Appends a Reshape to a whole shape, without -1."""
        return self.emit("Reshape", [x, self.ints("shape", shape)], outputs, {"allowzero": 1})

    def passthrough(self, node: OnnxNode, **attrs: Any) -> None:
        """Emits the node unchanged, with `attrs` replaced."""
        schema = schema_of(node.op)
        if schema is None:
            raise UnsupportedError(f"{node.label}: op {node.op} has no definition in opset {OPSET}")
        for name in node.attrs:
            if name not in schema.attributes and name != "consumed_inputs":
                accepted = ", ".join(sorted(schema.attributes))
                raise UnsupportedError(f"{node.label}: attribute {name!r} is not supported; accepted: {accepted}")
        self.emit(node.op, node.inputs, node.outputs, {**node.attrs, "consumed_inputs": None, **attrs})


Handler = Callable[[OnnxBuilder, OnnxNode], None]
Handlers = Mapping[tuple[str, str], Handler]


def deciding(graph: Graph, wanted: Iterable[str], known: set[str]) -> tuple[str, ...]:
    """The values among `known` that the tensors `wanted` are computed from."""
    producers = graph.producers()
    found: dict[str, None] = {}
    stack = list(wanted)
    seen = set(stack)
    while stack:
        name = stack.pop()
        if not name or graph.tensors[name].is_const:
            continue
        if name in known:
            found[name] = None
            continue
        more = [i for i in producers[name].inputs if i not in seen]
        seen.update(more)
        stack += more
    return tuple(found)
