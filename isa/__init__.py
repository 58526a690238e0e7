"""The one description of the machine: configuration, instructions, registers, numerics, timing, programs."""
