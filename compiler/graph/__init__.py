"""The graph all stages work on: nodes, tensors, their quantisation, and the quantised operators (`ops/`)."""
