"""From a quantised graph to the order of its work: what the NPU does, what the CPU does, and who needs which layout.

The passes, each a function from the graph and the decisions before it to new decisions:

    place.py     place_nodes      NPU or CPU for every node, with the reason
    tails.py     fuse_tails       Adds and tables join the node before them; the order of work
    layout.py    choose_layouts   the layout every piece of NPU work uses, and the blocked tensors that come of it

Then `tilewright.compiler.npu.ops` turns the NPU's work into layers. Each op takes its operands from
`tilewright.compiler.npu.blocks`, which adds the conversions that are missing. `compiler/stages/partition.py` calls all
this in order.
"""
