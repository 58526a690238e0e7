"""Simulators of netlists: as synthesis leaves them, and as place and route does, by the bits of the bitstream."""
