"""The buffer of the clock: between its pin and all that read it, at its place."""

from __future__ import annotations

from tilewright.fpga.flows.netlist import Module, new_cell
from tilewright.fpga.flows.nexus import buffer_clock


def test_the_clock_has_a_buffer_at_its_place() -> None:
    module: Module = {
        "ports": {"clk": {"bits": [2]}, "rx": {"bits": [3]}},
        "cells": {
            "rx": new_cell("IB", ("O",), {}, I=[3], O=[5]),
            "clk": new_cell("IB", ("O",), {}, I=[2], O=[4]),
            "first": new_cell("FD1P3IX", ("Q",), {}, CK=[4], D=[5], Q=[6]),
            "second": new_cell("FD1P3IX", ("Q",), {}, CK=[4], D=[4], Q=[7]),
        },
    }
    buffer_clock(module, "clk")
    cells = module["cells"]
    (buffer,) = [cell for cell in cells.values() if cell["type"] == "DCC"]
    assert buffer["connections"] == {"CLKI": cells["clk"]["connections"]["O"], "CLKO": [4]}
    assert buffer["connections"]["CLKI"][0] not in range(2, 8)
    assert "/DCC_" in buffer["attributes"]["BEL"]
    assert cells["rx"]["connections"]["O"] == [5]
