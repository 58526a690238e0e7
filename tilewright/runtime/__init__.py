"""Running: devices by name, the executor of programs, their inputs and the layout of their tensors."""
