"""From the operators of a segment to kernel calls: fusion, and placement in memory."""
