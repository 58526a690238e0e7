"""The RTL of a configuration as text, made once for all tests of a process: it takes some seconds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Fragment
from amaranth.hdl._ir import Design, build_netlist

from tilewright.hw.connections import design
from tilewright.hw.npu import Npu
from tilewright.hw.verilog import TOP, convert
from tilewright.isa.config import NpuConfig


@functools.cache
def verilog_of(config: NpuConfig) -> str:
    """Returns the Verilog of a configuration, as `tilewright.hw.verilog.convert` makes it."""
    return convert(config)


def rtlil_of(config: NpuConfig, *, sources: bool) -> str:
    """Returns the RTLIL of a configuration, for yosys, with or without the lines of its sources."""
    return rtlil.convert_fragment(design(Npu(config), TOP), name=TOP, emit_src=sources)[0]


@functools.cache
def digest_of_rtl(config: NpuConfig) -> str:
    """Returns 12 hex digits over the netlist of the RTL: another way to write the same is no other RTL, nor are other
    names."""
    return digest_of_cells(design(Npu(config), TOP))


def digest_of_cells(design: Design | Fragment, ports: Sequence[Any] = ()) -> str:
    """Returns 12 hex digits over the cells of an elaborated design, the nets between them and its ports. Names of
    signals and modules, their order in RTLIL, and lines of sources make no difference."""
    return hashlib.sha256("\n".join(map(repr, build_netlist(design, ports).cells)).encode()).hexdigest()[:12]


def digest_of_all(digests: Iterable[str]) -> str:
    """Returns 12 hex digits over digests."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]


def digest_of_machines(configs: Iterable[NpuConfig]) -> str:
    """Returns 12 hex digits over the RTL of several machines."""
    return digest_of_all(map(digest_of_rtl, configs))
