"""The RTL of a configuration as text, made once for all tests of a process: it takes some seconds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

from amaranth.back import rtlil

from tilewright.hw.connections import design
from tilewright.hw.npu import Npu
from tilewright.hw.verilog import TOP, convert
from tilewright.isa.config import NpuConfig


@functools.cache
def verilog_of(config: NpuConfig) -> str:
    """Returns what `tilewright.hw.verilog.convert` gives."""
    return convert(config)


def rtlil_of(config: NpuConfig, *, sources: bool) -> str:
    """Returns what yosys reads, with the lines of the sources it comes from or without them."""
    return rtlil.convert_fragment(design(Npu(config), TOP), name=TOP, emit_src=sources)[0]


@functools.cache
def digest_of_rtl(config: NpuConfig) -> str:
    """Returns 12 hex digits over the RTL: another way to write the same is no other RTL."""
    return hashlib.sha256(rtlil_of(config, sources=False).encode()).hexdigest()[:12]


def digest_of_machines(configs: Iterable[NpuConfig]) -> str:
    """Returns 12 hex digits over the RTL of several machines."""
    return hashlib.sha256(" ".join(map(digest_of_rtl, configs)).encode()).hexdigest()[:12]
