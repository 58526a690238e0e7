"""ONNX operators one at a time: shape inference and evaluation by the onnx package, subgraphs, tensors in files beside
the model."""
