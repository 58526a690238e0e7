"""Random small ONNX graphs of movement, gather, integer, float and control ops, and what the compiler makes of them."""
