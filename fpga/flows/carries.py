"""Removes the cells that nextpnr adds at the ends of ECP5 carry chains."""

from __future__ import annotations

from tilewright.fpga.flows.netlist import Module, loads

_CARRY = "CCU2C"


def open_carries(module: Module) -> None:
    """Opens ports of carry cells in a module, in place: a COUT that nothing reads, and a CIN that does not matter
    because the first bit of its cell makes a carry of its own (`fpga/techmap/ecp5.v`).

    nextpnr spends a cell of two LUTs on a COUT that has a net, and another on a CIN that is a constant.
    """
    read = loads(module)
    for cell in module["cells"].values():
        if cell["type"] != _CARRY:
            continue
        pins = cell["connections"]
        if pins["COUT"][0] not in read:
            pins["COUT"] = ["x"]
        propagate = cell["parameters"]["INIT0"][:4]  # the bits of INIT0 where C and D are 1
        if isinstance(pins["CIN"][0], str) and pins["C0"] == pins["D0"] == ["1"] and propagate == "0000":
            pins["CIN"] = ["x"]
