"""The Verilog of a configuration, made once for all tests of a process: it takes some seconds."""

from __future__ import annotations

import functools

from hw.verilog import convert
from isa.config import NpuConfig


@functools.cache
def verilog_of(config: NpuConfig) -> str:
    """What `hw.verilog.convert` gives."""
    return convert(config)
