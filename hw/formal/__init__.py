"""Formal proofs about the parts of `hw`: benches, properties, bounds. The table is in docs/formal.md."""
