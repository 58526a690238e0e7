"""Graphs as MLIR text in its generic form: a module with one function, whose results are the graph's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from msgspec import structs

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.mlir.attributes import dictionary, tensor_type

#: Version of the dialect, in the attribute `tilewright.format` of the module.
FORMAT = 1


def graph_text(graph: Graph) -> str:
    """The graph as text that `read_graph` reads again.

    Raises:
        UnsupportedError: a tensor or an attribute that has no type in MLIR.
    """
    return "\n".join(_Writer(graph).lines()) + "\n"


def natural_order(graph: Graph) -> list[str]:
    """Names of the tensors in the order in which they are read: inputs, constants, results."""
    results = [name for node in graph.nodes for name in node.outputs if name]
    return list(dict.fromkeys([*graph.inputs, *(n for n, t in graph.tensors.items() if t.is_const), *results]))


class _Writer:
    """Writes one graph.

    Attributes:
        values: name of each tensor in the text, such as "%3".
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[str, str] = {}

    def lines(self) -> list[str]:
        graph = self.graph
        arguments = [f"{self._value(name)}: {self._type(name)}" for name in graph.inputs]
        body = [f"  ^bb0({', '.join(arguments)}):"]
        if any(not name for node in graph for name in node.inputs):
            body.append('    %none = "tilewright.none"() : () -> none')
        for name, tensor in graph.tensors.items():
            if tensor.is_const and name not in self.values:
                entries = {"value": tensor.data, "tilewright.results": [self._described(name)]}
                body.append(self._op([name], "tilewright.constant", [], entries))
        body += [self._node(node) for node in graph.nodes]
        returned = [self.values[name] for name in graph.outputs]
        types = [self._type(name) for name in graph.outputs]
        body.append(f'    "func.return"({", ".join(returned)}) : ({", ".join(types)}) -> ()')
        function = {
            "sym_name": "main",
            "arg_attrs": [{f"tilewright.{k}": v for k, v in self._described(n).items()} for n in graph.inputs],
            "res_attrs": [{"tilewright.name": name} for name in graph.outputs],
        }
        properties = dictionary(function)[1:-1]
        signature = f"({', '.join(map(self._type, graph.inputs))}) -> ({', '.join(types)})"
        return [
            '"builtin.module"() ({',
            f'  "func.func"() <{{{properties}, function_type = {signature}}}> ({{',
            *body,
            "  }) : () -> ()",
            f"}}) {dictionary(self._module())} : () -> ()",
        ]

    def _module(self) -> dict[str, Any]:
        """The attributes of the module: what a graph has beside tensors and nodes."""
        graph = self.graph
        natural = {name: k for k, name in enumerate(natural_order(graph))}
        order = tuple(natural[name] for name in graph.tensors if name in natural)
        states = [{k: getattr(s, k) for k in ("name", "begin", "end", "initial", "plain")} for s in graph.states]
        found = {
            "states": states,
            "limits": [{"name": n, "low": low, "high": high} for n, (low, high) in graph.limits.items()],
            "metadata": _pairs(graph.metadata),
            "floats": _pairs(graph.floats),
            "notes": list(graph.notes),
            "dropped": {} if graph.dropped is None else structs.asdict(graph.dropped),
            "order": () if order == tuple(range(len(order))) else order,
        }
        always = {"format": FORMAT, "name": graph.name, "opset": graph.opset, "serial": graph.serial}
        return {f"tilewright.{k}": v for k, v in (always | {k: v for k, v in found.items() if v}).items()}

    def _node(self, node: Node) -> str:
        entries: dict[str, Any] = {}
        if node.quantized is None:
            op, entries = f"tilewright.onnx.{node.op}", dict(node.attrs)
        else:
            op, quantized = f"tilewright.{node.op.lower()}", node.quantized
            values = ((f.name, getattr(quantized, f.name), f.default) for f in fields(quantized))
            entries = {name: value for name, value, default in values if value != default}
        if node.name:
            entries["tilewright.name"] = node.name
        if node.origin:
            entries["tilewright.origin"] = list(node.origin)
        entries["tilewright.results"] = [self._described(name) for name in node.outputs]
        try:
            return self._op(node.outputs, op, node.inputs, entries)
        except UnsupportedError as error:
            raise UnsupportedError(f"{node.op} {node.name!r}: {error}") from None

    def _op(self, results: Sequence[str], op: str, operands: Sequence[str], entries: Mapping[str, Any]) -> str:
        """An operation in its generic form."""
        read = ", ".join(self.values[name] if name else "%none" for name in operands)
        types = ", ".join(map(self._type, operands)), ", ".join(map(self._type, results))
        made = ", ".join(self._value(name) if name else f"%unused{len(self.values)}" for name in results)
        return f'    {made} = "{op}"({read}) {dictionary(entries)} : ({types[0]}) -> ({types[1]})'

    def _value(self, name: str) -> str:
        return self.values.setdefault(name, f"%{len(self.values)}")

    def _type(self, name: str) -> str:
        if not name:
            return "none"
        tensor = self.graph.tensors[name]
        try:
            return tensor_type(tensor.shape, tensor.dtype)
        except UnsupportedError as error:
            raise UnsupportedError(f"tensor {name!r}: {error}") from None

    def _described(self, name: str) -> dict[str, Any]:
        """Name and quantisation of a tensor."""
        tensor = self.graph.tensors.get(name)
        return {} if tensor is None else _described(tensor, self.graph.is_invented(name))


def _described(tensor: Tensor, invented: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": tensor.name}
    if invented:
        found["invented"] = True
    quant = tensor.quant
    if quant is not None and quant.per_tensor:
        found |= {"scale": np.float32(quant.scale), "zero_point": int(quant.zero_point)}
    elif quant is not None:
        found |= {"scale": quant.scale, "zero_point": quant.zero_point, "axis": quant.axis}
    return found


def _pairs(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "text": text} for key, text in texts.items()]


__all__ = ["FORMAT", "graph_text", "natural_order"]
