"""SDRAM as the memory of a small board: the chip, its controller, and the ports of `tilewright.fpga.memory` in front of
it."""
