"""A device over the network: `tilewright serve` shares one, `tcp://HOST:PORT` uses it.

What goes over the wire is the device's part of a program: instructions, constants and the tensors at its borders, never
CPU kernels, so that a server runs no foreign code. Instructions and constants are sent once by content.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would say on standard error, an exception says
