"""Masks of attention: what a Softmax makes 0 of, however it was written: -inf, the least float32, -10000.

Ranges that hold such values would have no steps left for the scores beside them. So a tensor that only Softmax reads is
looked at as if what is masked lay just so far below its row's greatest that all of it together is half a step of the
result; what lies lower saturates there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantize.layers import Kind, Layer, Network, attributes_of
from tilewright.quantize.recipe import Range

MASKED = -1000.0
"""Scores at or below this value are masked; no real score is so low."""

_STEPS = 512
"""Half steps of a Softmax's result in 8 bits."""


class Masks:
    """Finds the masked elements of tensors that a Softmax reads, and of the operands of sums that make them."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._axes = {name: axis for name in network.readers if (axis := _softmax_axis(network, name)) is not None}
        #: Of the operands of such a sum: the other one, and the sum.
        self._added: dict[str, tuple[str, str]] = {}
        for layer in network.layers:
            if layer.kind is Kind.PAIR and layer.op == "Add" and layer.outputs[0] in self._axes:
                if len(layer.inputs) == 2:
                    one, other = layer.inputs
                    self._added |= {one: (other, layer.outputs[0]), other: (one, layer.outputs[0])}
        #: Operands that mask, as far as they were seen.
        self.masked: set[str] = set()

    def may_mask(self, name: str) -> bool:
        """Whether elements of a tensor may be masked."""
        return name in self._axes or name in self._added

    def unmasked(self, name: str, value: np.ndarray) -> np.ndarray:
        """The values that a tensor's range has to hold: masked ones as near as a Softmax lets them be, or left out
        where they are added."""
        axis = self._axes.get(name)
        if (axis is None and name not in self._added) or not value.size or not value.min() <= MASKED:
            return value
        if axis is None:
            self.masked.add(name)
            return np.asarray(value[value > MASKED])
        greatest = value.max(axis=axis, keepdims=True)
        floor = greatest - np.float32(np.log(_STEPS * value.shape[axis]))
        shown = np.where(value <= MASKED, floor, value)
        return np.asarray(shown[np.broadcast_to(greatest > MASKED, value.shape)])  # without rows that are masked whole

    def seen(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """The unmasked elements of a tensor, bool of its shape; None if nothing is masked."""
        if (name not in self._axes and name not in self._added) or not value.size or not value.min() <= MASKED:
            return None
        return np.asarray(value > MASKED)

    def widen(self, ranges: dict[str, Range]) -> None:
        """Makes ranges of operands hold a value that masks: with it, the sum is below its range wherever the other one
        lies."""
        for name in self.masked & ranges.keys() & self._added.keys():
            other, result = self._added[name]
            low = ranges[result].with_zero().low - ranges[other].with_zero().high
            ranges[name] = Range(min(low, ranges[name].low), ranges[name].high)


def least_of_constants(network: Network, layers: list[Layer], ranges: Mapping[str, Range]) -> dict[str, float]:
    """Replacements of constants that mask in a sum: values that mask as well, and are smaller; see `Masks.widen`."""
    found: dict[str, float] = {}
    for layer in layers:
        if layer.kind is Kind.PAIR and layer.op == "Add" and _constant_masks(network, layer):
            bound = ranges[layer.outputs[0]].with_zero().low - ranges[layer.inputs[0]].with_zero().high
            for name in layer.constants:
                found[name] = min(found.get(name, 0.0), bound)
    return found


def add_masks(model: onnx.ModelProto) -> None:
    """Makes Where(seen, scores, least) in front of a Softmax scores + Where(seen, 0, least), in place.

    Sums can be integers; a choice by a tensor of truth values is no layer.
    """
    graph = model.graph
    constants = {x.name: x for x in graph.initializer}
    softmaxes = {node.input[0] for node in graph.node if node.op_type == "Softmax"}
    masks: dict[tuple[str, str], str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        least = constants.get(node.input[2]) if node.op_type == "Where" and node.output[0] in softmaxes else None
        value = None if least is None else numpy_helper.to_array(least)
        if value is None or value.size != 1 or not value.max() <= MASKED:
            nodes.append(node)
            continue
        seen, scores, hidden = node.input
        if (seen, hidden) not in masks:
            zero, mask = f"{hidden}_zero", f"{seen}_{hidden}_mask"
            if zero not in constants:
                constants[zero] = numpy_helper.from_array(np.zeros_like(value), zero)
                graph.initializer.append(constants[zero])
            nodes.append(helper.make_node("Where", [seen, zero, hidden], [mask], mask))
            masks[seen, hidden] = mask
        nodes.append(helper.make_node("Add", [scores, masks[seen, hidden]], [node.output[0]], node.name))
    made = list(nodes)
    del graph.node[:]
    graph.node.extend(made)


def _constant_masks(network: Network, layer: Layer) -> bool:
    """Whether a constant of a sum masks some of it."""
    values = [network.constant(name) for name in layer.constants]
    return any(value is not None and value.size and value.min() <= MASKED for value in values)


def _softmax_axis(network: Network, name: str) -> int | None:
    """The axis of the Softmax that is the only reader of a tensor, else None."""
    readers = network.readers[name]
    if not readers or any(node.op_type != "Softmax" for node in readers) or not network.is_float(name):
        return None
    axes = {attributes_of(node).get("axis", -1) for node in readers}
    axis = axes.pop()
    return int(axis) if not axes and isinstance(axis, int) else None
