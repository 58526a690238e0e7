"""The example of `docs/compiler.md`, "Adding an op": QSquare, in the files that a new quantised op consists of.

Each file would lie in a folder of the compiler, where it would be found by itself; here `test_adding_an_op.py` imports
them.
"""
