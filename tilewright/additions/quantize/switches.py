"""A model in which the quantisation of each tensor can be switched on and off from run to run.

    x -> QuantizeLinear -> DequantizeLinear -> y      =>    ... -> Where(switch, y, x)

and the same for weights. So one model answers for every choice of precisions what the outputs would be.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.recipe import Precision, Recipe, Sample
from tilewright.quantize.segments import Segments
from tilewright.quantize.sqnr import Noise
from tilewright.quantize.writing import quantised_layers, write

Outputs = dict[str, np.ndarray]


def quantised_names(network: Network, recipe: Recipe, precision: Mapping[str, Precision]) -> frozenset[str]:
    """The tensors that are quantised under some precisions, and the names of products whose weights are."""
    chosen = quantised_layers(network, recipe.with_precision(precision))
    found: set[str] = set()
    for layer in network.layers:
        if layer.name in chosen:
            found.update([*layer.inputs, *layer.outputs, *layer.constants])
            if layer.kind is Kind.PRODUCT:
                found.add(layer.name)
    return frozenset(found)


class Switchboard:
    """The quantised model of a recipe with switches.

    Args:
        recipe: its precisions do not matter: all layers are quantised to 8 bits here, but recurrent ones, whose values
            inside have no names: theirs are quantised by what reads and writes them.
        base: what is on in most runs, by the names `quantised_names` gives: only what differs from it is run.

    Attributes:
        model: the quantised model with a switch, a further input, for each name.
    """

    def __init__(self, recipe: Recipe, base: frozenset[str] = frozenset()) -> None:
        self.network = recipe.network
        self._base = base
        self._names: set[str] = set()
        steps = {x.name: Precision.FLOAT for x in self.network.layers if x.kind is Kind.RECURRENT}
        self.model = self._switched(write(recipe.with_precision(steps)))
        self._segments: Segments | None = None

    def run(self, sample: Sample, on: frozenset[str]) -> Outputs:
        """The outputs with some quantisations switched on, by the names `quantised_names` gives."""
        if self._segments is None:
            base = [f"switch:{name}" for name in self._names & self._base]
            self._segments = Segments(self.network.model, self.model, sample, base=base)
        feeds = {f"switch:{name}": np.array(name in on) for name in self._names}
        found = self._segments.run(sample, feeds, [name for name, value in feeds.items() if value])
        return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}

    def _switched(self, model: onnx.ModelProto) -> onnx.ModelProto:
        source = {node.output[0]: node for node in model.graph.node if node.op_type == "QuantizeLinear"}
        products = {layer.nodes[0].name: layer for layer in self.network.layers if layer.weights}
        taken = {x.name for x in model.graph.initializer}
        nodes: list[onnx.NodeProto] = []
        for node in model.graph.node:
            quantizer = source.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
            if quantizer is not None:
                name = quantizer.name.removesuffix("_QuantizeLinear")
                result = node.output[0]
                node.output[0] = f"{result}:quantised"
                nodes.append(node)
                nodes.append(self._where(name, node.output[0], quantizer.input[0], result))
                continue
            layer = products.get(node.name)
            if layer is not None:
                for at, name in ((1, layer.weights), (2, layer.bias)):
                    if name and (node.input[at] != name or name not in taken):
                        real = f"{name}:float"
                        if real not in taken:
                            copy = onnx.TensorProto()
                            copy.CopyFrom(self.network.constants[name])
                            copy.name = real
                            model.graph.initializer.append(copy)
                            taken.add(real)
                        result = f"{name}:{node.name}"
                        nodes.append(self._where(layer.name, node.input[at], real, result))
                        node.input[at] = result
            nodes.append(node)
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        for name in sorted(self._names):
            model.graph.input.append(helper.make_tensor_value_info(f"switch:{name}", TensorProto.BOOL, []))
        del model.graph.value_info[:]
        return model

    def _where(self, name: str, on: str, off: str, result: str) -> onnx.NodeProto:
        self._names.add(name)
        return helper.make_node("Where", [f"switch:{name}", on, off], [result], f"{result}:switch")


def noise(wanted: list[Outputs], found: list[Outputs]) -> np.ndarray:
    """Energy of the error of each float output, as a fraction of the output's."""
    names = [name for name, value in wanted[0].items() if value.dtype.kind == "f"]
    result = []
    for name in names:
        one = Noise()
        for a, b in zip(wanted, found):
            one.add(a[name], b[name])
        result.append(10 ** (-one.decibels / 10))
    return np.array(result)
