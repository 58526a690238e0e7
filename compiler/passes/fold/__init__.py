"""Passes that compute constants at compile time and simplify the graph without changing a value."""
