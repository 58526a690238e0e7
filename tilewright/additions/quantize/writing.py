"""The quantised model in QDQ form: QuantizeLinear and DequantizeLinear around the layers of the float model.

A tensor that a quantised layer writes keeps its name for its dequantised value, so that whatever reads it, branches and
the model's outputs too, needs no change; the value before is `NAME_QuantizeLinear_Input`. A tensor that a float node
writes keeps its name, too, and quantised layers read `NAME_DequantizeLinear_Output`. Weights keep their names for their
dequantised values.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.quantize.groups import Groups
from tilewright.quantize.integers import (
    SMALLEST,
    Parameters,
    exact_sum,
    hold_bias,
    nearest_weights,
    parameters,
    power_of_two,
)
from tilewright.quantize.layers import SCATTERS, Kind, Layer, Network
from tilewright.quantize.masks import least_of_constants
from tilewright.quantize.names import BETWEEN, MADE, QUANTIZED, READ, SCALE, ZERO_POINT
from tilewright.quantize.observe import copied, without_constants
from tilewright.quantize.recipe import Precision, Range, Recipe, Weights
from tilewright.quantize.recurrent_integers import IntegerSteps
from tilewright.quantize.recurrent_steps import states_of, sums_of, value_name, values_of
from tilewright.quantize.rounding import LIMIT


def weight_axis(network: Network, layer: Layer, per_channel: bool) -> int | None:
    """The axis of a product's weights with a scale each, None for one scale."""
    rank = len(network.constants[layer.weights].dims)
    groups = next((a.i for a in layer.nodes[0].attribute if a.name == "group"), 1)
    if not per_channel or (layer.op in ("MatMul", "Gemm") and rank != 2):
        return None
    if layer.op == "ConvTranspose" and groups > 1:
        return None  # the axis holds the channels of one group only
    return layer.axis


def limit_of(layer: Layer, recipe: Recipe) -> int:
    """Returns the greatest absolute value of a product's weights: the recipe's, but 127 where channels have groups.

    The NPU packs no weights of its window, and depthwise layers have few: 4 bits would cost them much for nothing.
    """
    return LIMIT if layer.op in ("Conv", "ConvTranspose") and _groups(layer) > 1 else recipe.limit


def quantised_layers(network: Network, recipe: Recipe) -> dict[str, Precision]:
    """Selects the layers to quantise, by name: products, and layers between two of them.

    What only comes before the first product or after the last one stays float. There it costs little, because inputs
    and outputs are floats on the CPU anyhow, and it matters most: boxes and scores that a detector joins in one
    tensor, for one, have nothing like a common scale. A cache, into which new values are put, has 8 bits wherever
    a product reads it: every run reads all of it.
    """
    chosen = [layer for layer in network.layers if recipe.precision_of(layer.name) is not Precision.FLOAT]
    made = set(network.producer) if network.whole else set[str]()  # there it begins with what is looked up
    after = made | {name for layer in chosen if layer.multiplies for name in layer.outputs}
    for layer in chosen:
        if after.intersection(layer.inputs):
            after.update(layer.outputs)
    before = {name for layer in chosen if layer.multiplies for name in layer.inputs}
    for layer in reversed(chosen):
        if before.intersection(layer.outputs):
            before.update(layer.inputs)
    return {
        layer.name: recipe.precision_of(layer.name)
        for layer in chosen
        if layer.multiplies
        or (before.intersection(layer.outputs) and (layer.op in SCATTERS or after.intersection(layer.inputs)))
    }


def write(recipe: Recipe) -> onnx.ModelProto:
    """The quantised model; `recipe` is left unchanged.

    Raises:
        KeyError: a range is missing.
    """
    return _Writer(recipe).write() if recipe.written is None else copied(recipe.written)


class _Writer:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.network = recipe.network
        self.precision = quantised_layers(self.network, recipe)
        self.layers = [layer for layer in self.network.layers if layer.name in self.precision]
        self.written = {name: layer for layer in self.layers for name in layer.outputs}
        self.int8 = np.dtype(recipe.activation)
        self.groups = _shared(self.network, self.layers)
        self.ranges = self._ranges()
        self.least = least_of_constants(self.network, self.layers, self.ranges)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.weights: dict[str, list[tuple[Weights, int | None, str]]] = {}  # written, by name in the float model
        self.dequantised: dict[tuple[str, np.dtype], str] = {}
        self.integers: dict[tuple[str, np.dtype], str] = {}
        opset = next(x.version for x in recipe.model.opset_import if x.domain in ("", "ai.onnx"))
        self.wide_domain = "" if opset >= 21 else "com.microsoft"

    def write(self) -> onnx.ModelProto:
        layer_of = {id(node): layer for layer in self.layers for node in layer.nodes}
        for node in self.network.nodes:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            layer = layer_of.get(id(node))
            if layer is not None and layer.kind is Kind.RECURRENT:
                self._recurrent(layer, node)
                continue
            if layer is not None:
                self._inputs(layer, node, made)
            else:
                self._kept_weights(node, made)
            for at, name in enumerate(node.output):
                if name in self.written:
                    made.output[at] = f"{name}{MADE}"
            self.nodes.append(made)
            for at, name in enumerate(node.output):
                if name in self.written:
                    dtype = self._dtype(self.written[name])
                    pair = self._pair(made.output[at], name, name, parameters(self.ranges[name], dtype))
                    self.dequantised[name, dtype], self.integers[name, dtype] = name, pair
        return self._model()

    def _dtype(self, layer: Layer) -> np.dtype:
        wide = self.precision[layer.name] is Precision.INT16 and layer.kind is not Kind.RECURRENT
        return np.dtype(np.int16) if wide else self.int8

    def _ranges(self) -> dict[str, Range]:
        """Ranges of the tensors at the border of quantised layers; tensors that share quantisation have one range."""
        found: dict[str, Range] = {}
        recurrent = [layer for layer in self.layers if layer.kind is Kind.RECURRENT]
        names = {name for layer in self.layers for name in [*layer.inputs, *layer.outputs]}
        names.update(value_name(layer, value) for layer in recurrent for value in values_of(layer))
        for name in sorted(names):
            own, leader = self.recipe.ranges[name], self.groups.find(name)
            found[leader] = found[leader].union(own) if leader in found else own
        for layer in self.layers:
            if self._dtype(layer).itemsize == 1 and self.network.interpolates(layer.nodes[0]):
                leader = self.groups.find(layer.inputs[0])
                found[leader] = power_of_two(found[leader])
        for layer in self.layers if self.network.whole else ():
            if layer.kind is Kind.PRODUCT and not layer.weights:
                for leader in map(self.groups.find, layer.inputs):
                    found[leader] = _around_zero(found[leader])
        for total, a, b in (x for layer in recurrent for x in sums_of(layer)):
            total, *parts = (self.groups.find(name) for name in (total, a, b))
            found[total] = exact_sum(found[total], *(parameters(found[name], self.int8) for name in parts))
        return {name: found[self.groups.find(name)] for name in names}

    # -- inputs of layers ---------------------------------------------------------------------------------------------

    def _inputs(self, layer: Layer, node: onnx.NodeProto, made: onnx.NodeProto) -> None:
        dtype = self._dtype(layer)
        for at, name in enumerate(node.input):
            if name in layer.inputs:
                made.input[at] = self._read(name, dtype)
            elif name in layer.constants:
                made.input[at] = self._constant(name, dtype)
        if layer.weights and node is layer.nodes[0]:
            self._weights(layer, made, parameters(self.ranges[layer.inputs[0]], dtype))

    def _read(self, name: str, dtype: np.dtype) -> str:
        """The tensor's value after quantising to a type."""
        if (name, dtype) not in self.dequantised:
            suffix = "" if name not in self.written else f"_{dtype.name}"
            result = f"{name}{suffix}{READ}"
            pair = self._pair(name, f"{name}{suffix}", result, parameters(self.ranges[name], dtype))
            self.dequantised[name, dtype], self.integers[name, dtype] = result, pair
        return self.dequantised[name, dtype]

    def _pair(self, source: str, stem: str, result: str, found: Parameters) -> str:
        """Writes QuantizeLinear and DequantizeLinear from `source` to `result`; returns what is between them."""
        scale = self._add(f"{stem}{SCALE}", np.asarray(found.scale, np.float32))
        zero = self._add(f"{stem}{ZERO_POINT}", np.asarray(found.zero_point, found.dtype))
        domain = self.wide_domain if found.dtype == np.int16 else ""
        between = f"{stem}{BETWEEN}"
        for op, x, y in (("QuantizeLinear", source, between), ("DequantizeLinear", between, result)):
            self.nodes.append(helper.make_node(op, [x, scale, zero], [y], f"{stem}_{op}", domain=domain))
        return between

    def _constant(self, name: str, dtype: np.dtype) -> str:
        if (name, dtype) not in self.dequantised:
            values = np.maximum(numpy_helper.to_array(self.network.constants[name]), self.least.get(name, -np.inf))
            found = parameters(Range(float(values.min()), float(values.max())), dtype)
            integers = found.integers(values)
            stem = f"{name}_{dtype.name}"
            zero = np.asarray(found.zero_point, dtype)
            domain = self.wide_domain if dtype == np.int16 else ""
            self.dequantised[name, dtype] = f"{stem}{READ}"
            self._dequantise(stem, integers, np.asarray(found.scale), zero, self.dequantised[name, dtype], None, domain)
        return self.dequantised[name, dtype]

    def _dequantise(
        self, stem: str, values: np.ndarray, scale: np.ndarray, zero: np.ndarray, result: str, axis: int | None,
        domain: str = "",
    ) -> None:  # fmt: skip
        inputs = [
            self._add(f"{stem}{QUANTIZED}", values),
            self._add(f"{stem}{SCALE}", scale),
            self._add(f"{stem}{ZERO_POINT}", zero),
        ]
        attributes = {} if axis is None else {"axis": axis}
        name = f"{stem}_DequantizeLinear"
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [result], name, domain=domain, **attributes))

    def _add(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    # -- recurrent layers ---------------------------------------------------------------------------------------------

    def _recurrent(self, layer: Layer, node: onnx.NodeProto) -> None:
        """The steps as a Scan of integers, at the layer's last node."""
        if node is not layer.nodes[-1]:
            return
        dtype = self._dtype(layer)
        of = lambda x: parameters(x if isinstance(x, Range) else self.ranges[x], dtype)

        def integers(name: str) -> str:
            self._read(name, dtype)
            return self.integers[name, dtype]

        steps = IntegerSteps(self.network, layer, of, integers, dtype)
        self.nodes += steps.nodes
        self.constants.update((x.name, x) for x in steps.constants)
        for name in steps.handed_out:
            self.dequantised[name, dtype] = name
            self.integers[name, dtype] = f"{name}:integers"

    # -- weights ------------------------------------------------------------------------------------------------------

    def _weights(self, layer: Layer, made: onnx.NodeProto, x: Parameters) -> None:
        axis = weight_axis(self.network, layer, self.recipe.per_channel)
        weights = self.network.constant(layer.weights)
        bias = self.network.constant(layer.bias) if layer.bias else None
        assert weights is not None
        channels = weights.shape[layer.axis] * (_groups(layer) if layer.op == "ConvTranspose" else 1)
        integer_bias = bias is not None and bias.size == channels and x.dtype != np.int16
        rounded = self.recipe.weights.get(layer.name)
        if rounded is None or rounded.scale is None:
            rounded = nearest_weights(weights, axis, limit_of(layer, self.recipe))
        elif rounded.bias is not None:
            bias = rounded.bias
        assert rounded.scale is not None
        if integer_bias and bias is not None:
            rounded = hold_bias(rounded, bias, float(x.scale), axis if rounded.scale.ndim else None)
        weight_scale = np.asarray(rounded.scale, np.float32)
        axis = axis if weight_scale.ndim else None
        zero = np.zeros(weight_scale.shape, np.int8)
        shared = len(self.network.readers.get(layer.weights, [])) > 1
        alike = (x for x in self.weights.setdefault(layer.weights, []) if _same(x[0], rounded) and x[1] == axis)
        found = next(alike, None)
        if found is None:
            stem = f"{layer.weights}_of_{layer.name}" if shared else layer.weights
            result = f"{stem}{READ}" if shared else layer.weights
            self._dequantise(stem, rounded.values, weight_scale, zero, result, axis)
            self.weights[layer.weights].append((rounded, axis, result))
        else:
            result = found[2]
        made.input[1] = result
        if integer_bias and bias is not None:
            scale = np.asarray(np.float32(x.scale) * weight_scale, np.float32)
            integers = np.rint(bias.reshape(-1).astype(np.float64) / scale.astype(np.float64))
            integers = np.clip(integers, -(2.0**31), 2.0**31 - 1).astype(np.int32)
            stem = f"{layer.bias}_of_{layer.name}"
            result = f"{stem}{READ}"
            zero = np.zeros(scale.shape, np.int32)
            self._dequantise(stem, integers, scale, zero, result, 0 if scale.ndim else None)
            made.input[2] = result

    def _kept_weights(self, node: onnx.NodeProto, made: onnx.NodeProto) -> None:
        """Weights of a node that stays float: fitted ones if there are such.

        Behind a quantised layer they are int16 with a scale per channel: onnxruntime quantises float weights between a
        DequantizeLinear and a QuantizeLinear to 8 bits by itself; those that already come out of a DequantizeLinear it
        leaves. 16 bits are as good as floats: 98 dB.
        """
        given = self.recipe.weights.get(node.name)
        fitted = given if given is not None and given.scale is None else None
        weights = self.network.constant(node.input[1]) if len(node.input) > 1 else None
        if fitted is not None:
            weights = fitted.values
            if fitted.bias is not None:
                made.input[2] = self._add(f"{node.input[2]}_of_{node.name}_fitted", fitted.bias)
        fits = weights is not None and weights.dtype == np.float32 and weights.ndim >= 2
        if not fits or node.op_type not in ("Conv", "ConvTranspose", "Gemm") or node.input[0] not in self.written:
            if fitted is not None:
                made.input[1] = self._add(f"{node.input[1]}_of_{node.name}_fitted", fitted.values)
            return
        assert weights is not None
        axis = 1 if node.op_type == "ConvTranspose" else 0
        wide = [-1 if i == axis else 1 for i in range(weights.ndim)]
        bound = np.abs(weights).max(axis=tuple(i for i in range(weights.ndim) if i != axis)).astype(np.float64)
        scale = np.where(bound > SMALLEST, bound / 32767, 1.0).astype(np.float32)
        values = np.clip(np.rint(weights / scale.reshape(wide)), -32767, 32767).astype(np.int16)
        stem = f"{node.input[1]}_of_{node.name}"
        result = f"{stem}{READ}"
        self._dequantise(stem, values, scale, np.zeros(scale.shape, np.int16), result, axis, self.wide_domain)
        made.input[1] = result

    # -- the model ----------------------------------------------------------------------------------------------------

    def _model(self) -> onnx.ModelProto:
        given = self.recipe.model
        result = without_constants(given)
        graph = result.graph
        del graph.node[:]
        graph.node.extend(self.nodes)
        made = {name for node in self.nodes for name in node.output}
        read = {x.name for x in graph.output} | {name for node in self.nodes for name in reads_of([node])}
        graph.initializer.extend(x for x in given.graph.initializer if x.name in read and x.name not in made)
        graph.initializer.extend(self.constants.values())
        infos = [x for x in given.graph.value_info if x.name in made]
        del graph.value_info[:]
        graph.value_info.extend(infos)
        if any(node.domain == "com.microsoft" for node in self.nodes):
            if not any(x.domain == "com.microsoft" for x in result.opset_import):
                result.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return result


def _around_zero(found: Range) -> Range:
    """The range around 0, of -128 to 127 steps.

    A product of two activations then has no zero points, for which the NPU would read a cache once more. It costs
    probabilities a bit: 0.4 % of perplexity.
    """
    bound = max(-found.low, found.high)
    return Range(-bound * 128 / 127, bound)


def _same(a: Weights, b: Weights) -> bool:
    """Whether both have the same integers and scales."""
    scales = (np.asarray(a.scale, np.float32), np.asarray(b.scale, np.float32))
    return np.array_equal(scales[0], scales[1]) and np.array_equal(a.values, b.values)


def _groups(layer: Layer) -> int:
    return next((int(a.i) for a in layer.nodes[0].attribute if a.name == "group"), 1)


def _shared(network: Network, layers: list[Layer]) -> Groups:
    """Groups tensors that share their quantisation. Moved elements keep theirs; what only a Concat reads has that of
    its result, so that it is rounded once; a tensor and the rows put into it are alike, before and after."""
    groups = Groups()
    inside = {id(node) for layer in layers for node in layer.nodes}
    for layer in layers:
        if layer.kind is Kind.MOVE:
            for name in layer.outputs:
                groups.join(name, layer.inputs[0])
    made = {name: layer for layer in layers for name in layer.outputs}
    for layer in layers:
        if layer.kind is Kind.RECURRENT:
            for state, outside in states_of(layer).items():
                for name in outside:
                    groups.join(name, value_name(layer, state))
        if layer.kind is not Kind.JOIN:
            continue
        if layer.op in SCATTERS:  # one memory
            for name in layer.inputs:
                groups.join(name, layer.outputs[0])
            continue
        for name in layer.inputs:
            reader = network.sole_reader(name)
            own = made.get(name)
            if reader is not None and id(reader) in inside and own is not None and own.kind is not Kind.MOVE:
                groups.join(name, layer.outputs[0])
    return groups
