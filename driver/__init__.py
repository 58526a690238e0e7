"""The board driver: the `Device` of a real NPU, over Linux user-space drivers, PCIe, or a serial bridge."""
