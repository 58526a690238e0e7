"""Rewrites of the graph before layers are placed: what the NPU computes in another form, as operators it has."""
