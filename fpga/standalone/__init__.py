"""A SoC that needs no host: a RISC-V core beside the NPU, which starts from the board's flash memory."""
