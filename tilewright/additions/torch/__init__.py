"""PyTorch: modules exported, quantised and compiled; the backend of `torch.compile`."""
