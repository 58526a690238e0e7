"""Compiling: from models to programs, or to native code for this machine alone."""
