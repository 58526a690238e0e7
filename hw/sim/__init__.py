"""The Verilated NPU as a device."""
