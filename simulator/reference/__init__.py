"""The executable definition of the instruction set: a method for each instruction, kept simple.

`machine.py` defines the order in which instructions run, a file for each engine their effects.
"""

from tilewright.simulator.reference.machine import ReferenceMachine, run_reference

__all__ = ["ReferenceMachine", "run_reference"]
