"""Formal proofs about what boards put around the NPU; benches and tools are those of `verification.formal`."""
