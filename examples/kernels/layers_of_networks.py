"""A kernel in the place of a network's convolutions, with the Add and the table that are fused into them.

`tilewright compile MODEL -o FILE --kernels examples/kernels/layers_of_networks.py`; in Python the option is `kernels`.
`replaces` decides which layers a kernel takes, of those that read as many tensors as it does, and gives its constants.
A tensor that stays in ACT is read and written in place, so that `load` costs nothing there.
"""

from tilewright import kernel as tk


@tk.kernel
def convolution(k, x, *, layer, rows):
    return multiply_and_add(k, x, None, layer, rows)


@tk.kernel
def convolution_and_add(k, x, other, *, layer, rows):
    return multiply_and_add(k, x, other, layer, rows)


def multiply_and_add(k, x, other, layer, rows):
    weights = k.weights(layer.weights, stride=layer.stride, pad=layer.pad, dilation=layer.dilation)
    params, table = k.params(layer.bias, layer.scale), None if layer.table is None else k.table(layer.table)
    y = k.tensor(layer.output)
    for part in tk.chunks(y.rows, rows):
        tile = k.load(x.at(weights.rows(part), weights.columns(range(y.columns))), pad=layer.fill)
        add = None if other is None else layer.addend(k.load(other.at(part)))
        k.requantise(k.matmul(tile, weights), params, **layer.post, add=add, table=table, into=y.at(part))
    return y


@convolution.replaces
@convolution_and_add.replaces
def small_convolutions(layer):
    fits = layer.kind == "conv" and layer.output[0] == 1 and layer.weights.size <= 64 * 64 * 9
    return {"layer": layer, "rows": 2} if fits else None
