"""The scratchpads with their ports, and the AXI4 masters that reach memory."""
