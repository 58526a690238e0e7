"""Registers behind multipliers moved into the DSP blocks of ECP5, in the netlist yosys gives to nextpnr.

Neither of the two does it. The wire from the block is then no longer in the path of the multiplier: nextpnr counts
3.5 ns of setup in place of 3.9 ns and the wire.
"""

from __future__ import annotations

from typing import Any

from fpga.netlist import Bit, Module, loads

BLOCK, REGISTER = "MULT18X18D", "TRELLIS_FF"
#: A block with registers behind the product, clocked by CLK0, always enabled and never reset.
OUTPUT_REGISTER = {
    "REG_OUTPUT_CLK": "CLK0",
    "REG_OUTPUT_CE": "CE0",
    "REG_OUTPUT_RST": "RST0",
    "GSR": "DISABLED",
    "RESETMODE": "SYNC",
}
#: What a register must be to be taken: neither enable nor reset, 0 at the start.
PLAIN = {"CEMUX": "1", "CLKMUX": "CLK", "GSR": "DISABLED", "REGSET": "RESET"}


def move_registers(module: Module) -> int:
    """Changes a module in place: where every used bit of a product goes to a plain register, of one clock, and nowhere
    else, these registers become those of the block. Returns how many went."""
    cells: dict[str, Any] = module["cells"]
    read = loads(module)
    registers: dict[Bit, str] = {  # by what they store
        cell["connections"]["DI"][0]: name
        for name, cell in cells.items()
        if cell["type"] == REGISTER and _is_plain(cell)
    }

    moved = 0
    for cell in [cell for cell in cells.values() if cell["type"] == BLOCK]:
        product = {port: bits[0] for port, bits in cell["connections"].items() if _is_product(port) and bits}
        used = {port: bit for port, bit in product.items() if read[bit]}
        if not used or any(read[bit] != 1 or bit not in registers for bit in used.values()):
            continue
        clocks = {cells[registers[bit]]["connections"]["CLK"][0] for bit in used.values()}
        if len(clocks) != 1:
            continue
        for port, bit in used.items():
            cell["connections"][port] = cells.pop(registers[bit])["connections"]["Q"]
        cell["parameters"] |= OUTPUT_REGISTER
        for port, bits in (("CLK0", [*clocks]), ("CE0", ["1"]), ("RST0", ["0"])):
            cell["connections"][port] = bits
            cell["port_directions"][port] = "input"
        moved += len(used)
    return moved


def _is_product(port: str) -> bool:
    return port[0] == "P" and port[1:].isdigit()


def _is_plain(cell: dict[str, Any]) -> bool:
    parameters = {name: str(value).strip() for name, value in cell["parameters"].items()}
    reset = cell["connections"].get("LSR", ["0"])
    return reset == ["0"] and all(parameters.get(name) == value for name, value in PLAIN.items())
