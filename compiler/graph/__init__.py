"""The graph of all compiler stages: nodes, tensors, their quantisation, and the quantised operators (`ops/`)."""
