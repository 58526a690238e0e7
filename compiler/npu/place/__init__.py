"""Placement: turns a quantised graph into an order of work for NPU and CPU, with the layout of every tensor.

The passes, each a function from the graph and earlier decisions to new ones:

    place.py     place_nodes      NPU or CPU for every node, with the reason
    tails.py     fuse_tails       Adds and tables join the node before them; the order of work
    layout.py    choose_layouts   the layout of every chain, and the blocked tensors that follow from it

Then `tilewright.compiler.npu.ops` turns the NPU's work into layers. Each op takes its operands from
`tilewright.compiler.npu.blocks`, which adds missing conversions. `compiler/stages/partition.py` calls all this in
order.
"""
