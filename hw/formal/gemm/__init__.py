"""GEMM and DEPTHWISE."""
