"""Ops that run on the host: what is no tensor of numbers, and control flow by run-time values."""

from tilewright.dynamic.host import bounded, control, images, moves, sequences, text  # noqa: F401  (they fill the table)
from tilewright.dynamic.host.operators import HOST, HostNode, HostOp, host_op

__all__ = ["HOST", "HostNode", "HostOp", "host_op"]
