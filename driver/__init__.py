"""The board driver: registers, DMA memory and the run loop, over UIO, VFIO or a serial bridge."""
