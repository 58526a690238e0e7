"""The executable definition of the instruction set: a method for each instruction, nothing clever.

`machine.py` has the order in which instructions run, a file for each engine what they do.
"""

from tilewright.simulator.reference.machine import ReferenceMachine, run_reference

__all__ = ["ReferenceMachine", "run_reference"]
