"""The NPU alone, outside of any board: cells by Yosys, clock by nextpnr."""
