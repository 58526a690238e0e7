"""The NPU back end: which nodes run there, how they are tiled, and the instructions they become.

| folder | what it has |
|---|---|
| `place` | which nodes go to the NPU, which run in one pass with the node before, in which layout |
| `ops` | how the NPU runs each quantised op: when it can, and the layers that do it |
| `blocks` | tensors in the form the NPU reads and writes, and conversions to and from it |
| `layers` | the kinds of layers: how they are cut into tiles, and what they emit |
| `schedule` | decisions about layers of any kind: which tensors stay on the chip, which layers run together |
| `emit` | loop nests become instructions; scratchpads, hazards, semaphores |
"""
