"""Flat port lists of the top level: AXI4 master, AXI4-Lite slave, debug strobes."""

from __future__ import annotations

from amaranth.lib.wiring import In, Out

from isa.config import NpuConfig
from isa.instructions import Engine
from isa.registers import REGISTER_SPACE

#: Bits of an AXI4-Lite byte address.
AXIL_ADDRESS_BITS = (REGISTER_SPACE - 1).bit_length()
#: Width of instruction indices in error reports and debug ports.
PC_BITS = 32


def axi_master(config: NpuConfig, prefix: str = "axi_") -> dict[str, object]:
    """AXI4 master: one ID, INCR bursts of full-width beats."""
    names: dict[str, object] = {}
    for channel in ("ar", "aw"):
        names |= {
            f"{channel}valid": Out(1),
            f"{channel}ready": In(1),
            f"{channel}id": Out(1),
            f"{channel}addr": Out(config.axi_address_bits),
            f"{channel}len": Out(8),
            f"{channel}size": Out(3),
            f"{channel}burst": Out(2),
            f"{channel}cache": Out(4),
            f"{channel}prot": Out(3),
        }
    names |= {
        "rvalid": In(1),
        "rready": Out(1),
        "rid": In(1),
        "rdata": In(config.axi_data_bits),
        "rresp": In(2),
        "rlast": In(1),
        "wvalid": Out(1),
        "wready": In(1),
        "wdata": Out(config.axi_data_bits),
        "wstrb": Out(config.bus_bytes),
        "wlast": Out(1),
        "bvalid": In(1),
        "bready": Out(1),
        "bid": In(1),
        "bresp": In(2),
    }
    return {prefix + name: member for name, member in names.items()}


def axil_slave(prefix: str = "axil_") -> dict[str, object]:
    """AXI4-Lite slave of 32-bit registers; byte strobes must be all ones (others are ignored)."""
    names: dict[str, object] = {}
    for channel in ("aw", "ar"):
        names |= {
            f"{channel}valid": In(1),
            f"{channel}ready": Out(1),
            f"{channel}addr": In(AXIL_ADDRESS_BITS),
            f"{channel}prot": In(3),
        }
    names |= {
        "wvalid": In(1),
        "wready": Out(1),
        "wdata": In(32),
        "wstrb": In(4),
        "bvalid": Out(1),
        "bready": In(1),
        "bresp": Out(2),
        "rvalid": Out(1),
        "rready": In(1),
        "rdata": Out(32),
        "rresp": Out(2),
    }
    return {prefix + name: member for name, member in names.items()}


def debug(prefix: str = "dbg_") -> dict[str, object]:
    """Strobes for timelines: per engine `step` (useful work in this cycle), `start` and `end` of an instruction with
    its index. FETCH: `start` is the dispatch of an instruction into its queue, `end` the END instruction."""
    names: dict[str, object] = {}
    for engine in Engine:
        e = engine.name.lower()
        names |= {
            f"{e}_step": Out(1),
            f"{e}_start": Out(1),
            f"{e}_start_pc": Out(PC_BITS),
            f"{e}_end": Out(1),
            f"{e}_end_pc": Out(PC_BITS),
        }
    return {prefix + name: member for name, member in names.items()}
