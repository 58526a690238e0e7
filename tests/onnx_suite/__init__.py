"""ONNX's own backend test suite over `tilewright.onnx_backend`; `python -m tests.onnx_suite --help`."""
