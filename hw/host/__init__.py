"""What the host sees and sets: AXI4-Lite registers, memory regions, counters, start and reset."""
