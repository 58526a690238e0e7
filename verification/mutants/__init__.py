"""Faults put into the netlist of the NPU one at a time, and whether the tests find them.

`faults.py` makes one design that has all faults of a sample, each turned on by its number; `trials.py` has the tests;
`run.py` lets them look for each fault. The tests compare what they compare without faults: bytes, counters, errors, and
the cycles in which instructions start and end.
"""
