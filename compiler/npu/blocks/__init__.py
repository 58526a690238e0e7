"""Tensors in the blocks of lanes that the NPU reads and writes: what there is, aliases, and conversions to and fro."""
