"""Proofs that a compiled program computes its quantised graph, for all inputs. See docs/verification/prove.md.

`checker` compares graph and program; it and what it uses (`names`, `rules`, `machine`, `order`, `graph`) import `isa`
and numpy, and nothing of the compiler, simulators and runtime. `compiled` gets both sides from the compiler, `command`
is the command line, `witness` searches an input that shows a difference.
"""
