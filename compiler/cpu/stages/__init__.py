"""From the operators of a segment to kernel calls: what is computed with what, where it lies in memory."""
