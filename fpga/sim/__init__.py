"""Simulated boards: the Verilated design of a bitstream behind a pseudo-terminal or a socket."""
