"""The netlist of a component: cells and the nets between them, as Amaranth elaborates it."""

from __future__ import annotations

import hashlib
from typing import Any

from amaranth.hdl._ir import build_netlist

from tilewright.hw.connections import design


def digest_of_netlist(component: Any, name: str) -> str:
    """Returns 16 hex digits over the cells, the nets between them, and the ports of a component that is elaborated as
    top module `name`. Names of signals and modules, their order in RTLIL, and lines of sources make no difference.
    """
    cells = build_netlist(design(component, name)).cells
    return hashlib.sha256("\n".join(map(repr, cells)).encode()).hexdigest()[:16]
