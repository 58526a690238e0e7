"""Integer rules of Conv and ConvTranspose with constant weights."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site
from tilewright.compiler.passes.weights import add_weights, constant_bias, constant_weights


@integer_rule("Conv", "ConvTranspose")
def convolution(site: Site) -> list[Node] | None:
    """The rule of convolutions: weights constant, per tensor or per output channel; bias none, int32 or float constant.

    onnxruntime has no integer kernel for ConvTranspose, nor for a bias whose scale is not that of the products.
    """
    x, attrs, source = site.activation(0, signed=True), site.node.attrs, site.dequantizer(1)
    transposed = site.node.op == "ConvTranspose"
    weights = constant_weights(site.graph, source, axis=1 if transposed else 0)
    if x is None or source is None or weights is None:
        return None
    data, quant = weights
    group = int(attrs["group"])
    if transposed and group > 1 and not quant.per_tensor:
        return None  # ONNX's axis 1 holds the channels of one group only
    channels = data.shape[1] * group if transposed else data.shape[0]
    inputs = [x.name, add_weights(site.graph, source, data, quant)]
    reason = site.in_floats if transposed else site.why_floats(x, source)
    if site.has(2):
        assert x.quant is not None
        bias = constant_bias(site.graph, site.node.inputs[2], site.producers, x.quant, quant, channels, site.alone)
        if bias is None:
            return None
        if not bias.fits:
            reason = site.in_floats
        integers = site.bias(bias, x.quant, quant, reason)
        if integers is None:
            return None
        inputs.append(site.graph.constant(f"{site.node.inputs[2]}.int32", integers))
    kernel, strides, pads = attrs["kernel_shape"], attrs["strides"], attrs["pads"]
    if transposed:
        return [site.make(QConvTranspose(
            kernel=kernel, strides=strides, pads=pads, dilations=attrs["dilations"], group=group,
            output_padding=attrs["output_padding"], reason=reason,
        ), inputs)]  # fmt: skip
    return [site.make(QConv(
        kernel=kernel, strides=strides, pads=pads, dilations=attrs["dilations"], group=group, reason=reason,
    ), inputs)]  # fmt: skip
