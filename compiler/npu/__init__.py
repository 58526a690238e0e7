"""The NPU back end: which nodes run there, how they are tiled, and the instructions they become.

`lower.py` makes layers out of nodes; `layers/` has the kinds of layers, `schedule/` decides about the layers of a step,
`emit/` makes instructions of loop nests.
"""
