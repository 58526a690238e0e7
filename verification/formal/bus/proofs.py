"""Proofs about the AXI4 master, the registers and the reset."""

from __future__ import annotations

from verification.formal.bus import axi_benches, register_benches
from verification.formal.machines import WIDE, WIDEST
from verification.formal.proof import Proof, on

_READ = Proof("axi_read", axi_benches.axi_read, True, 1)
_WRITE = Proof("axi_write", axi_benches.axi_write, True, 1)

PROOFS: tuple[Proof, ...] = (
    _READ,
    _WRITE,
    Proof("write_drain", axi_benches.write_drain, False, 12),
    Proof("load_window", axi_benches.load_window, True, 2, quick=False),
    Proof("store_window", axi_benches.store_window, True, 2, quick=False),
    Proof("walker", axi_benches.walker, True, 1, quick=False),
    Proof("fetch_window", axi_benches.fetch_window, True, 1),
    Proof("constants", axi_benches.constants, False, 1),
    Proof("register_writes", register_benches.writes, True, 1),
    Proof("register_reads", register_benches.reads, False, 60),
    Proof("reset", register_benches.reset, True, 2, quick=False),
    *(on(proof, c, str(c.axi_data_bits), quick=True) for proof in (_READ, _WRITE) for c in (WIDE, WIDEST)),
)
