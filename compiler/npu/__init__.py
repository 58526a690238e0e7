"""The NPU back end: which nodes run there, how they are tiled, and the instructions they become."""
