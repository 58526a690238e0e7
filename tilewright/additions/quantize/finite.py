"""Float models that can be calibrated: of float32, and finite on all samples but where infinite values are meant.

Ranges leave out what is no number, and a scale is made of what is left; so samples from which the model overflows would
give a quantised model that is wrong without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.errors import UsageError
from tilewright.quantize.halves import HALVES
from tilewright.quantize.layers import PRODUCTS, Network
from tilewright.quantize.sample_values import LARGEST, place

_INFINITE = {"Log"}
"""Ops of finite numbers whose results may be meant to be infinite: a mask of the logarithm of 0."""


def may_be_infinite(network: Network) -> set[str]:
    """Tensors that may be infinite or NaN on purpose: made of constants that are, or are very large, such as masks, up
    to the next Softmax or product."""
    found = {name for name, x in network.constants.items() if _extreme(x)}
    for node in network.nodes:
        inside = [a for a in node.attribute if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
        tensors = [a.t for a in node.attribute if a.type == AttributeProto.TENSOR]
        numbers = [a.f for a in node.attribute if a.type == AttributeProto.FLOAT]
        if (
            node.op_type in _INFINITE
            or inside
            or any(map(_extreme, tensors))
            or any(not abs(x) <= LARGEST for x in numbers)
            or (found.intersection(reads_of([node])) and not _ends(network, node))
        ):
            found.update(node.output)
    return found


def _ends(network: Network, node: onnx.NodeProto) -> bool:
    """True if the results of a node must be finite: products, and Softmax unless IsNaN reads it."""
    if node.op_type == "Softmax":
        return all(reader.op_type != "IsNaN" for reader in network.readers.get(node.output[0], []))
    return node.op_type in PRODUCTS


def _extreme(tensor: onnx.TensorProto) -> bool:
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE)
    if tensor.data_type not in kinds:
        return False
    values = numpy_helper.to_array(tensor)
    with np.errstate(invalid="ignore"):
        return bool(values.size) and not bool(np.abs(values).max() <= LARGEST)


def require_single(model: onnx.ModelProto) -> str:
    """The precision of a model by the weights of its products: float32, or halves, which can be made such.

    Raises:
        UsageError: the products compute in float64.
    """
    other = {**HALVES, TensorProto.DOUBLE: "float64"}
    kinds = {x.name: x.data_type for x in model.graph.initializer}
    kinds |= {x.name: x.type.tensor_type.elem_type for x in model.graph.input}
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is not None:
            kinds[node.output[0]] = value.data_type
    products = [(node, name) for node in model.graph.node if node.op_type in PRODUCTS for name in node.input[:2]]
    found = next(((node, name) for node, name in products if kinds.get(name) in other), None)
    if found is not None and not any(kinds.get(name) == TensorProto.FLOAT for _, name in products):
        (node, name) = found
        kind = other[kinds[name]]
        if kinds[name] in HALVES:
            return kind
        raise UsageError(
            f"the model computes in {kind}: {name!r}, which {node.op_type} {node.name!r} reads, is {kind}; models of "
            "float32 are accepted: export it as float32"
        )
    return "float32"


class Finite:
    """Refuses samples for which a model makes NaN, or values beyond `LARGEST`.

    Args:
        meant: tensors that may have such values.
        writers: the node that writes a tensor, by name.
    """

    def __init__(self, suggest: Iterable[str], writers: Mapping[str, onnx.NodeProto]) -> None:
        self._meant, self._writers = set(suggest), writers

    @classmethod
    def of(cls, network: Network) -> Finite:
        return cls(may_be_infinite(network), network.producer)

    def check(self, name: str, value: np.ndarray, sample: Mapping[str, np.ndarray], what: str) -> None:
        """Raises `UsageError` if the tensor has values for a sample that are no numbers or beyond `LARGEST`, and is not
        meant to have.

        Args:
            what: which sample it is.
        """
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or name in self._meant:
            return
        if not value.size or (value.max() <= LARGEST and value.min() >= -LARGEST):
            return
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(value) <= LARGEST)
        node = self._writers.get(name)
        where = f"{name!r}, which {node.op_type} {node.name!r} writes," if node is not None else repr(name)
        given = ", ".join(
            f"{n!r} within {x.min():.3g}..{x.max():.3g}" for n, x in sample.items() if x.size and x.dtype.kind in "fiu"
        )
        raise UsageError(
            f"{what}: in the float model {where} has {value[bad].flat[0]:g}{place(bad)}; numbers within "
            f"±{LARGEST:.2g} are accepted: scale samples as when the model runs (this one has {given})"
        )
