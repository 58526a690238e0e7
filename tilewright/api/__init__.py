"""Compiling: models to programs, the cache of programs, and models as native code."""
