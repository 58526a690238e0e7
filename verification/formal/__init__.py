"""Formal proofs about the parts of `hw`: benches, properties, bounds; in `boards` about parts of `fpga`. The table is
in docs/verification/formal.md."""
