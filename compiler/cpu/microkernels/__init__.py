"""Hand-scheduled inner kernels: register-tiled matmul and byte transposition."""
