"""LLVM: compiles text to object code, in this process and in processes beside it.

Imports nothing else of the compiler, so that such a process starts quickly.
"""
