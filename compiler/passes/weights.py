"""Constant weights as int8 and biases as int32, and biases that are separate Adds.

uint8 w, zero point z   =>  int8 w - 128, zero point z - 128        (w - z unchanged)
all w - z within int8   =>  int8 w - z, zero point 0
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.graph.quantization import bias_scale
from tilewright.compiler.graph.tensor import EIGHT_BIT, NARROW
from tilewright.compiler.passes.annotate import quant_of


def constant_weights(graph: Graph, dequantize: Node | None, axis: int) -> tuple[np.ndarray, Quant] | None:
    """The int8 values and quantisation of a dequantised constant of 8, 4 or 2 bits; None if it is anything else.

    Args:
        axis: the output channel axis; per-channel scales along another axis do not fit the integer ops.
    """
    if dequantize is None or dequantize.op != "DequantizeLinear":
        return None
    quant, tensor = quant_of(graph, dequantize), graph.tensor(dequantize.inputs[0])
    if quant is None or tensor.data is None or tensor.dtype not in (*EIGHT_BIT, *NARROW):
        return None
    axis %= max(len(tensor.shape), 1)
    if not quant.per_tensor and quant.axis != axis:
        return None
    shape = [1] * len(tensor.shape)
    if not quant.per_tensor:
        shape[axis] = -1
    zero = quant.zero_point.reshape(shape) if not quant.per_tensor else quant.zero_point
    if tensor.dtype == np.int8 and not quant.zero_point.any():
        return tensor.data, quant
    centred = tensor.data.astype(np.int32) - zero
    if centred.size == 0 or (centred.min() >= -128 and centred.max() <= 127):
        return centred.astype(np.int8), Quant(quant.scale, np.zeros_like(quant.zero_point), quant.axis)
    # |w - z| exceeds int8, so the zero point is far off the middle of uint8, or int8 has a zero point.
    shift = 128 if tensor.dtype == np.uint8 else 0
    return (tensor.data.astype(np.int32) - shift).astype(np.int8), Quant(
        quant.scale, quant.zero_point - np.int32(shift), quant.axis
    )


def add_weights(graph: Graph, dequantize: Node, data: np.ndarray, quant: Quant) -> str:
    """The name of a constant with these values: the ONNX tensor itself if it holds them already."""
    tensor = graph.tensor(dequantize.inputs[0])
    if tensor.dtype == np.int8 and data is not None and tensor.shape == data.shape:
        if np.array_equal(tensor.data, data) and quant.same_as(tensor.quant):  # type: ignore[arg-type]
            return tensor.name
    return graph.constant(f"{tensor.name}.int8", data, quant)


class Bias(Struct, frozen=True):
    """A constant bias of sums of products, whose step is f32(sx * sw) of each output channel.

    Attributes:
        integers: int32 [channels]; those of the model, or RNE(b / f32(sx * sw)) of a float bias, onnxruntime's rule for
            all products with one QuantizeLinear.
        steps: float64 [channels]; the bias of the float computation, over the step.
        fits: True if its scale is so near the step that onnxruntime's integer Conv takes the integers.
    """

    integers: np.ndarray
    steps: np.ndarray
    fits: bool

    def in_floats(self, scale: np.ndarray, low: int, high: int) -> np.ndarray | str:
        """The int32 [channels] equivalent to the bias where onnxruntime computes in floats, or the reason why there are
        none.

        Args:
            scale: output steps per step of the sums.
            low, high: range of the output, less its zero point.

        Returns:
            No integers where more sums would be rounded otherwise than the order of a float sum explains: a bias
            between two steps moves them, and ties are frequent for some scales. None, too, where a sum may wrap.
        """
        if np.array_equal(self.steps, self.integers):
            return self.integers
        whole = np.rint(self.steps)
        off = np.abs(self.steps - whole)
        with np.errstate(all="ignore"):
            share = _share_at_ties(off, np.abs(scale), low, high)
        if np.any(np.abs(whole) > _WIDEST):
            why = f"has more than {_WIDEST:,} steps of the sums, which may wrap"
        elif np.all(share <= _FEW):
            return np.asarray(whole.astype(np.int32))
        else:
            between = np.any(off > 2.0**-22 * np.abs(whole))  # else it is what float32 makes of a whole number of steps
            cause = "lies between two steps of the sums" if between else "meets frequent ties"
            why = f"{cause}: integers would round more than one of {1 / _FEW:,.0f} results otherwise"
        return f"onnxruntime adds its bias in floats, and it {why}"


#: The share of results that the order of a float sum changes where they are quantised, at most.
_FEW = 1e-4
#: Steps of the sums that a bias has, at most: of more a sum may wrap.
_WIDEST = 1 << 30
#: Output steps by which a float sum is off.
_OFF = 2.0**-16


def _share_at_ties(off: np.ndarray, scale: np.ndarray, low: int, high: int) -> np.ndarray:
    """The share of integer sums that floats may round to the other side of a tie, by channel.

    Args:
        off: offset of the sums, in their own steps.
    """
    ties = (np.arange(low, high) + 0.5) / scale.reshape(-1, 1)
    reach = (off + _OFF / scale.reshape(-1)).reshape(-1, 1)
    near = np.maximum(np.floor(ties + reach) - np.ceil(ties - reach) + 1, 0)
    return np.asarray(near.sum(axis=1) / ((high - low) / scale.reshape(-1) + 1))


def product_and_vector(
    graph: Graph, node: Node, producers: dict[str, Node], consumers: dict[str, list[Node]]
) -> tuple[Node, int] | None:
    """The MatMul to which an Add adds one value per column, as torch writes its linear layers, and the index of the
    Add's input with these values. None for any other node, and where the product has another reader.
    """
    for index in (0, 1) if node.op == "Add" else ():
        product = producers.get(node.inputs[1 - index])
        if product is None or product.op != "MatMul":
            continue
        made = graph.tensor(product.outputs[0])
        alone = made.name not in graph.outputs and len(consumers[made.name]) == 1
        fits = graph.tensor(node.inputs[index]).shape == made.shape[-1:]
        if alone and fits and made.shape == graph.tensor(node.outputs[0]).shape:
            return product, index
    return None


def constant_bias(
    graph: Graph, name: str, producers: dict[str, Node], x: Quant, w: Quant, channels: int, alone: bool = True
) -> Bias | None:
    """The bias of a product of tensors with these scales; None if it is not constant int32 or float32 or not one value
    per channel.

    Args:
        alone: True if one QuantizeLinear reads the product, so that onnxruntime rounds a float bias.
    """
    step = np.asarray(x.scale * w.scale, np.float32)
    node = producers.get(name)
    if node is not None and node.op == "DequantizeLinear":
        return _dequantized_bias(graph, node, step, channels)
    value = graph.const(name)
    if value is None or value.dtype != np.float32:
        return None
    value = _per_channel(value, channels)
    if value is None:
        return None
    with np.errstate(all="ignore"):
        scaled = np.rint(value / step).astype(np.float64)
        steps = value.astype(np.float64) / step
    info = np.iinfo(np.int32)
    integers = np.clip(np.nan_to_num(scaled), info.min, info.max).astype(np.int32)
    return Bias(integers, integers.astype(np.float64) if alone else steps, True)


def _dequantized_bias(graph: Graph, node: Node, step: np.ndarray, channels: int) -> Bias | None:
    tensor, quant = graph.tensor(node.inputs[0]), quant_of(graph, node)
    if tensor.data is None or tensor.dtype != np.int32 or quant is None:
        return None
    integers = _per_channel(tensor.data, channels)
    if integers is None or quant.scale.size not in (1, channels):
        return None
    scale, zero = quant.scale.reshape(-1), quant.zero_point.reshape(-1)
    # Some exporters multiply in float64; the importer describes the bias of a QLinearConv.
    exact = ((np.abs(scale - step) <= 2.0**-20 * np.abs(step)) | (scale == bias_scale(step))) & (zero == 0)
    with np.errstate(all="ignore"):
        real = (integers.astype(np.int64) - zero).astype(np.float32) * scale
        steps = np.where(exact, integers, real.astype(np.float64) / step)
        margin = np.float32(0.01) * np.abs(step) + np.float32(1e-6)
        fits = np.abs(scale - step) <= margin
    return Bias(integers, steps, bool(np.all(fits | exact) and not np.any(zero)))


def _per_channel(value: np.ndarray, channels: int) -> np.ndarray | None:
    """The bias as [channels] where its shape has one value per last axis, else None."""
    if value.size == 1:
        return np.full(channels, value.reshape(()), value.dtype)
    if value.size == channels and value.shape[-1] == channels:
        return value.reshape(channels)
    return None
