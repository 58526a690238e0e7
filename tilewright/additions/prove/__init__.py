"""Proofs that a compiled program computes its quantised graph, for all inputs. See docs/verification/prove.md.

`checker` compares graph and program. Around it, `imported` and `compiled` get both sides, `entries` goes through entry
points, `certificate` keeps in a program what a proof of it takes, `command` is the command line, `difference`
finds where a program leaves its graph, and `witness` searches an input that shows it.
"""
