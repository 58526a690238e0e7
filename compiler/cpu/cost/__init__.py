"""Cost of CPU kernels: machine operations counted in their text, and the speeds of hosts that turn them into time."""

from tilewright.compiler.cpu.cost.count import Work, work_of
from tilewright.compiler.cpu.cost.hosts import HOST_MODELS, THIS, HostModel, host_model, named_host_model

__all__ = ["HOST_MODELS", "THIS", "HostModel", "Work", "host_model", "named_host_model", "work_of"]
