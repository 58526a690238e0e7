"""Importers of ONNX and TFLite models as `Graph`s: every tensor with a concrete shape and dtype, every op in one normal
form.

Normal form (opset `OPSET`, whatever the model's own opset is):

* Attributes with a default in the ONNX schema are always present.
* Parameters ONNX moved from attributes to inputs over time are inputs, constants where the model has constants.
  They are those of `Clip` (min, max), `Pad` (pads, value, axes), `Slice` (starts, ends, axes, steps), `Split` (sizes,
  always present), `Squeeze`/`Unsqueeze` and `Reduce*` (axes), `TopK` (k), `Resize` (scales or sizes).
* `Dropout` is removed.
* `Reshape` has its whole target shape as a constant, without 0 or -1.
* Convolutions and pools: `kernel_shape`, `strides`, `dilations` and explicit `pads`; no `auto_pad`, no `output_shape`;
  `ceil_mode` only where explicit padding cannot express it (average pools that count their padding).
* `Softmax`, `LogSoftmax`, `Hardmax` act on one axis; older models that flatten get the reshapes they imply.
* `Upsample` is `Resize`; control flow with constant conditions and trip counts is unrolled.
* The QOperator form (`QLinearConv`, `QLinearAdd`, `QGemm`, ...) is written as DequantizeLinear -> op -> QuantizeLinear;
  `fuse_quantization` makes integers of both forms.
* `QuantizeLinear` and `DequantizeLinear` always have a zero point, checked together with the scale.
"""
