"""The kinds of layers: how each is cut into tiles, and its instructions. `Layer` in `layer.py` is their interface.

| kind | file |
|---|---|
| `ConvLayer` | `conv.py`, its tile sizes in `conv_tiling.py`, its constants in `conv_constants.py` |
| `DepthwiseLayer` | `depthwise.py`, the order of its taps in `depthwise_passes.py` |
| `ElementLayer` | `elementwise.py`, with the base of all layers on VECTOR alone (`VectorLayer`) |
| `MaxPoolLayer`, `MeanLayer`, `LargeMeanLayer` | `pooling.py`, the passes of a maximum in `pooling_passes.py` |
| `SoftmaxLayer`, `NormLayer` | `softmax.py`, `norm.py` |
| `TakeLayer`, `TransposeLayer` | `take.py`, `transposition.py` |
| `ProductParamsLayer` | `product_params.py` |
"""
