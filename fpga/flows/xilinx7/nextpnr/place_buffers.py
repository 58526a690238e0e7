"""Script for nextpnr's Python before placement: gives the LUTs of `tilewright.fpga.flows.xilinx7.buffers` sites beyond
the tiles that PS7's wires pass.

It runs in nextpnr's Python, without this package: hence a folder of its own.
"""

from typing import Any

ctx: Any = globals()["ctx"]
#: LUTs of a slice that are taken: nextpnr has grounds from the first, where it is free.
LUTS = ("B6LUT", "C6LUT", "D6LUT")


def driver(cell: Any) -> Any:
    """The cell that drives a LUT of one input, and its port; None for other cells."""
    inputs = [port for name, port in cell.ports if name.startswith("A")]
    return inputs[0].net.driver if cell.type == "SLICE_LUTX" and len(inputs) == 1 else None


def tiles_to_branch(wire: Any) -> list[tuple[int, int]]:
    """Tiles from a pin to the first wire that branches."""
    tiles = []
    while pips := list(ctx.getPipsDownhill(wire)):
        at = ctx.getPipLocation(pips[0])
        tiles.append((at.x, at.y))
        if len(pips) > 1:
            break
        wire = ctx.getPipDstWire(pips[0])
    return tiles


(block,) = (bel for bel in ctx.getBels() if str(bel).endswith(".PS7"))
sites = [(at.x, at.y, str(bel)) for bel in ctx.getBels() if str(bel).endswith(LUTS) for at in [ctx.getBelLocation(bel)]]
drivers = {name: driver(cell) for name, cell in ctx.cells}
for name in sorted(drivers):
    before = drivers[name]
    if before and before.cell.type == "PS7_PS7":
        tiles = tiles_to_branch(ctx.getBelPinWire(block, before.port))
        left, top = max(x for x, _ in tiles), max(y for _, y in tiles)
        nearest = min((x - left + y - top, x, y, site) for x, y, site in sites if x >= left and y >= top)
        sites.remove(nearest[1:])
        ctx.cells[name].setAttr("BEL", nearest[3])
