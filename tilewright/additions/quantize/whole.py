"""Language models of which everything between a token and its logits has 8 bits, so that a token is few turns.

By default norms by a root mean square, RoPE and the sums of layers stay floats (`layers`), each of them work for the
CPU between two turns of the NPU. A model that is marked as whole has them quantised, too: a norm is one layer from its
squares to its scale, the angles of RoPE are looked up in a table of integers, and what hides tokens that are not there
yet is added to the scores (`masks.add_masks`), because the NPU adds but does not choose.

The mark is in the model's metadata, since the model itself is all that the steps of quantising hand on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx

_MARK = "tilewright.quantize.whole"


class Nodes(Protocol):
    """The part of `layers.Network` that norms are found by."""

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]: ...

    @property
    def constants(self) -> Mapping[str, onnx.TensorProto]: ...

    @property
    def producer(self) -> Mapping[str, onnx.NodeProto]: ...

    def constant(self, name: str) -> np.ndarray | None: ...

    def shape(self, name: str) -> list[int] | None: ...

    def sole_reader(self, name: str) -> onnx.NodeProto | None: ...


def is_whole(model: onnx.ModelProto) -> bool:
    """Whether a model is marked."""
    return any(x.key == _MARK for x in model.metadata_props)


def mark(model: onnx.ModelProto) -> None:
    """Marks a model as whole, in place."""
    if not is_whole(model):
        model.metadata_props.add(key=_MARK, value="1")


def unmark(model: onnx.ModelProto) -> None:
    """Takes the mark off, in place."""
    kept = [x for x in model.metadata_props if x.key != _MARK]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def norms(network: Nodes) -> Iterator[tuple[str, list[onnx.NodeProto]]]:
    """Yields the norms by a root mean square over the last axis that are written as several nodes.

    x / sqrt(mean(x^2) + e) * scale, where nothing else reads what lies between.

    Returns:
        The tensor that each norm reads, and its nodes in the order of the model.
    """
    for last in network.nodes:
        found = _norm(network, last) if last.op_type == "Mul" else None
        if found is not None:
            yield found


def _norm(network: Nodes, last: onnx.NodeProto) -> tuple[str, list[onnx.NodeProto]] | None:
    for at in (0, 1):
        if last.input[1 - at] not in network.constants:
            continue
        quotient = _inner(network, last.input[at], "Div")
        root = _inner(network, quotient.input[1], "Sqrt") if quotient is not None else None
        total = _inner(network, root.input[0], "Add") if root is not None else None
        if quotient is None or root is None or total is None:
            continue
        x = quotient.input[0]
        for k in (0, 1):
            mean, epsilon = _inner(network, total.input[k], "ReduceMean"), network.constant(total.input[1 - k])
            square = _inner(network, mean.input[0], "Pow", "Mul") if mean is not None else None
            if mean is None or square is None or epsilon is None or epsilon.size != 1 or square.input[0] != x:
                continue
            power = network.constant(square.input[1])
            squares = square.input[1] == x if square.op_type == "Mul" else power is not None and (power == 2).all()
            scale, shape = network.shape(last.input[1 - at]), network.shape(x)
            if squares and shape and scale == shape[-1:] and _last_axis(network, mean, len(shape)):
                return x, [square, mean, total, root, quotient, last]
    return None


def _inner(network: Nodes, name: str, *ops: str) -> onnx.NodeProto | None:
    """The node of one of some kinds that makes a tensor, if one node alone reads it."""
    node = network.producer.get(name)
    return node if node is not None and node.op_type in ops and network.sole_reader(name) is not None else None


def _last_axis(network: Nodes, mean: onnx.NodeProto, rank: int) -> bool:
    """Whether a ReduceMean is over the last axis alone, and keeps it."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in mean.attribute}
    axes = attributes.get("axes")
    if axes is None and len(mean.input) > 1 and (given := network.constant(mean.input[1])) is not None:
        axes = given.reshape(-1).tolist()
    return bool(attributes.get("keepdims", 1)) and axes is not None and [int(a) % rank for a in axes] == [rank - 1]
