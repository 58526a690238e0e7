"""ONNX operators into the normal form of the graph, a handler each."""
