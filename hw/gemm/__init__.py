"""The GEMM engine: steps, window register, array of multipliers, accumulators."""
