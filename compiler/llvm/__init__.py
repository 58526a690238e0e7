"""LLVM: from text to object code, in this process and in ones beside it.

Imports nothing else of the compiler, so that such a process starts quickly.
"""
