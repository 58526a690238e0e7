"""Proves that the netlist which is placed on an FPGA is the design it was made of.

`rtl.py` has the design before synthesis as gates, `ecp5.py` the netlist after it, with what cells do as the data sheet
says; `match.py` guesses which bits keep the states of which registers; `sweep.py` finds out what is equal in the logic
between them, by a solver; `prove.py` puts this together. Synthesis by yosys and ABC, and all changes to the netlist
after it, are not trusted; that a gate of yosys is the word it was made of is.
"""
