"""Faults put into compiled programs, and whether the prover rejects them.

`faults.py` draws and makes them, `judge.py` lets the prover and the functional simulator look. The faults of the
compiler's sources are those of `verification/source_faults`, those of the RTL of `verification/mutants`.
"""
