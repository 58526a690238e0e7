"""The kinds of layers: how each is cut into tiles and what it emits. The interface of all is `Layer` in `layer.py`.

| kind | file |
|---|---|
| `ConvLayer` | `conv.py`, its tile sizes in `conv_tiling.py` |
| `DepthwiseLayer` | `depthwise.py`, the order of its taps in `depthwise_passes.py` |
| `ElementLayer` | `elementwise.py`, with what all layers on VECTOR alone share (`VectorLayer`) |
| `MaxPoolLayer`, `MeanLayer` | `pooling.py` |
| `SoftmaxLayer`, `NormLayer` | `softmax.py`, `norm.py` |
"""
