"""The NPU back end: placement of nodes on the NPU, their tiling, and the instructions they become.

| folder | contents |
|---|---|
| `rewrites` | operators that the NPU lacks, replaced in the graph by operators it has |
| `place` | the nodes that run on the NPU, the Adds and tables that join the node before, and the layouts |
| `ops` | how the NPU runs each quantised op: the condition, and the layers that do it |
| `blocks` | tensors in the form the NPU reads and writes, and conversions to and from it |
| `layers` | the kinds of layers: how they are cut into tiles, and what they emit |
| `schedule` | decisions about layers of any kind: the tensors that stay on the chip, the layers that run together |
| `emit` | loop nests become instructions; scratchpads, hazards, semaphores |
| `coding` | coded weights: code tables and streams |
"""
