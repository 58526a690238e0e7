"""The compiler: quantised ONNX and TFLite graphs to NPU programs and native CPU kernels."""
