"""Flip-flops of Gowin FPGAs, in the netlist from yosys to nextpnr: registers behind multipliers and memories move into
the blocks, and each remaining one gets the LUT it needs as a wire.

Neither of the two does the first. nextpnr adds the wires itself, but after placement: it places flip-flops as if they
took no LUT, and finds no place for the last ones from two thirds of the sites on. A LUT and the flip-flop behind it it
keeps together from the start, so with the wires in the netlist it places 93 % of the sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from tilewright.fpga.flows.gowin_sites import DIRECT, in_pins
from tilewright.fpga.flows.netlist import Bit, Cell, Module, loads, new_cell, unused


class _Side(NamedTuple):
    """Registers of a block with the same clock, enable and reset: the parameters that enable them, by the outputs
    behind which or the inputs in front of which they are. Also the width of the outputs, and the fewest bits at which
    they work.
    """

    clock: str
    enable: str
    reset: str
    outputs: dict[str, str]
    inputs: dict[str, str] = {}
    width: str = ""
    least: int = 0


#: A memory is clocked for its reads anyway; its reset would also clear what is in front of the register. The GW2A-18C
#: has no register for narrow reads of memories with two equal ports (nextpnr).
_PRODUCT = (_Side("CLK", "CE", "RESET", {"DOUT": "OUT_REG"}, {"A": "AREG", "B": "BREG"}),)
_ROW = (_Side("CLKB", "OCE", "RESETB", {"DO": "READ_MODE"}),)
_ROWS = tuple(
    _Side(f"CLK{x}", f"OCE{x}", f"RESET{x}", {f"DO{x}": f"READ_MODE{n}"}, {}, f"BIT_WIDTH_{n}", 16)
    for n, x in enumerate("AB")
)
BLOCKS = {"MULT9X9": _PRODUCT, "MULT18X18": _PRODUCT, "SDPB": _ROW, "SDPX9B": _ROW, "DPB": _ROWS, "DPX9B": _ROWS}
#: Flip-flops without a reset.
PLAIN = ("DFF", "DFFE")
#: A LUT that is a wire: its output for an input of 1, and of 0.
WIRE = "10"


def move_registers(module: Module) -> int:
    """Moves registers of a module into blocks, in place. Every used bit of a product, of a row that is read, or of a
    factor must have a flip-flop of one clock and enable, without reset or another reader. Returns the number of moved
    flip-flops.
    """
    cells: dict[str, Any] = module["cells"]
    read = loads(module)
    low, high = constants(module)
    plain = {name: cell["connections"] for name, cell in cells.items() if cell["type"] in PLAIN}
    behind = {pins["D"][0]: name for name, pins in plain.items()}
    before = {pins["Q"][0]: name for name, pins in plain.items()}
    gone: set[str] = set()

    def takes(block: Cell, side: _Side, parameter: str, flip_flops: list[str]) -> bool:
        """Makes flip-flops a register of the block, but for the wires of its data. False if it cannot have one."""
        pins, parameters = block["connections"], block["parameters"]
        controls = {(plain[name]["CLK"][0], plain[name].get("CE", high)[0]) for name in flip_flops}
        if len(controls) != 1 or gone.intersection(flip_flops) or pins[side.reset] != low:
            return False
        ((clock, enable),) = controls
        others = any(parameters.get(other) == "1" for other in (*side.outputs.values(), *side.inputs.values()))
        if pins[side.clock] not in (low, [clock]) or (others and pins[side.enable] != [enable]):
            return False
        pins |= {side.clock: [clock], side.enable: [enable]}
        parameters[parameter] = "1"
        gone.update(flip_flops)
        return True

    for block in list(cells.values()):
        pins = block["connections"]
        for side in BLOCKS.get(block["type"], ()):
            if side.width and int(block["parameters"][side.width], 2) < side.least:
                continue
            for port, parameter in side.outputs.items():
                used = [bit for bit in pins[port] if read[bit]]
                if all(read[bit] == 1 and bit in behind for bit in used):
                    if takes(block, side, parameter, [behind[bit] for bit in used]):
                        pins[port] = [plain[behind[bit]]["Q"][0] if bit in used else bit for bit in pins[port]]
            for port, parameter in side.inputs.items():
                seen = Counter(bit for bit in pins[port] if [bit] not in (low, high))
                if all(read[bit] == times and bit in before for bit, times in seen.items()):
                    if takes(block, side, parameter, [before[bit] for bit in seen]):
                        pins[port] = [plain[before[bit]]["D"][0] if bit in seen else bit for bit in pins[port]]
    for name in gone:
        del cells[name]
    return len(gone)


def add_wires(module: Module) -> None:
    """Gives each flip-flop that can be neither in a pin nor in the site of its driver a LUT of its own, in place."""
    cells: dict[str, Any] = module["cells"]
    free = {bits[0] for cell in cells.values() for bits in _direct(cell)}  # outputs whose site has no flip-flop yet
    bits = unused(module)
    pinned = in_pins(cells)
    for name, cell in list(cells.items()):
        if not cell["type"].startswith("DFF") or name in pinned:
            continue
        pins = cell["connections"]
        if pins["D"][0] in free:
            free.remove(pins["D"][0])
            continue
        bit = next(bits)
        cells[f"{name}_wire"] = new_cell("LUT1", ("F",), {"INIT": WIRE}, I0=pins["D"], F=[bit])
        pins["D"] = [bit]


def constants(module: Module) -> tuple[list[Bit], list[Bit]]:
    """The nets that are 0 and 1."""
    driven = {cell["type"]: cell["connections"] for cell in module["cells"].values()}
    low: list[Bit] = driven["GND"]["G"] if "GND" in driven else ["0"]
    high: list[Bit] = driven["VCC"]["V"] if "VCC" in driven else ["1"]
    return low, high


def _direct(cell: Cell) -> Iterator[list[Bit]]:
    if (port := DIRECT.get(cell["type"][:3])) is not None:
        yield cell["connections"][port]
