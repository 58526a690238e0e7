"""The host's side: AXI4-Lite registers, memory regions, counters, start and reset."""
