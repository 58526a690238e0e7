"""Checking: a compiled model against onnxruntime or LiteRT."""
