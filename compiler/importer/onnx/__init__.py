"""Import handlers of ONNX operators, which emit the normal form of the graph."""
