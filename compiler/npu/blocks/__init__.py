"""Tensors in the channel blocks that the NPU reads and writes: buffers, aliases, and conversions of plain tensors."""
