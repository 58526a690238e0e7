"""The buses: the AXI4 master, the registers."""
