"""Replaces delay lines of a Gowin FPGA by block RAMs in the netlist from yosys to nextpnr. The flip-flops become a ring
of rows in a block RAM that would be free; each of them would take a site with its LUT as a wire.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tilewright.fpga.flows.gowin_registers import constants
from tilewright.fpga.flows.netlist import Bit, Module, loads, new_cell, unused

#: Bits of a row. The fewest rows: two or three flip-flops may be there for a signal of another clock to settle. The
#: most rows: those that a counter of four LUTs goes round.
ROW_BITS, LEAST_ROWS, MOST_ROWS = 36, 4, 16
#: A ring takes a site for each bit of its counter. A few flip-flops are not worth a block.
LEAST = 24
_MEMORY = {
    "BIT_WIDTH_0": f"{ROW_BITS:032b}",
    "BIT_WIDTH_1": f"{ROW_BITS:032b}",
    "READ_MODE": "0",
    "BLK_SEL_0": "000",
    "BLK_SEL_1": "000",
    "RESET_MODE": "SYNC",
}


def move_delays(module: Module, free: int, row_bits: int = ROW_BITS) -> int:
    """Moves delay lines of a module into up to `free` block RAMs, in place. A delay line is a piece of a chain of
    flip-flops without enable, reset or a reader in between. Returns the number of rings, which use `row_bits` of each
    row.
    """
    for ring in range(free):
        by_clock = _chains(module)
        sizes = {
            (rows, clock): rows * min(row_bits, sum(len(chain) // rows for chain in chains))
            for clock, chains in by_clock.items()
            for rows in range(LEAST_ROWS, MOST_ROWS + 1)
        }
        (rows, clock), most = max(sizes.items(), key=lambda item: (item[1], item[0][0]), default=((0, 0), 0))
        if most < LEAST:
            return ring
        pieces = [chain[n : n + rows] for chain in by_clock[clock] for n in range(0, len(chain) - rows + 1, rows)]
        _make_ring(module, f"delay_ring{ring}", rows, clock, pieces[:row_bits], row_bits)
    return free


def _chains(module: Module) -> dict[Bit, list[list[str]]]:
    """Chains of flip-flops, by clock: each flip-flop is the only reader of the one before it."""
    cells: dict[str, Any] = module["cells"]
    read = loads(module)
    plain = {c["connections"]["Q"][0]: name for name, c in cells.items() if c["type"] == "DFF"}
    before = {}
    for name in plain.values():
        data = cells[name]["connections"]["D"][0]
        if data in plain and read[data] == 1:
            before[name] = plain[data]
    last = set(plain.values()) - set(before.values())
    chains = defaultdict(list)
    for name in sorted(last):
        chain = [name]
        while chain[0] in before and before[chain[0]] not in chain:
            chain.insert(0, before[chain[0]])
        chains[cells[name]["connections"]["CLK"][0]].append(chain)
    return chains


def _make_ring(module: Module, name: str, rows: int, clock: Bit, pieces: list[list[str]], row_bits: int) -> None:
    """Replaces pieces of chains by a ring. The row read is the next one to be written, so a value comes out `rows`
    cycles after it was written.
    """
    cells: dict[str, Any] = module["cells"]
    low, high = constants(module)
    bits = unused(module)
    counter_bits = range((rows - 1).bit_length())
    row: list[Bit] = [next(bits) for _ in counter_bits]
    following: list[Bit] = [next(bits) for _ in counter_bits]
    for n in counter_bits:
        table = "".join(str((now + 1) % rows >> n & 1 if now < rows else 0) for now in reversed(range(16)))
        inputs = {f"I{k}": [row[k]] if k in counter_bits else low for k in range(4)}
        cells[f"{name}_following{n}"] = new_cell("LUT4", ("F",), {"INIT": table}, **inputs, F=[following[n]])
        cells[f"{name}_row{n}"] = new_cell("DFF", ("Q",), {"INIT": "0"}, CLK=[clock], D=[following[n]], Q=[row[n]])
    ins = [cells[piece[0]]["connections"]["D"][0] for piece in pieces]
    outs = [cells[piece[-1]]["connections"]["Q"][0] for piece in pieces]
    for piece in pieces:
        for flip_flop in piece:
            del cells[flip_flop]
    empty = row_bits - len(pieces)
    above = (14 - 5 - len(counter_bits)) * low
    written, read = [*(4 * high), *low, *row, *above], [*(5 * low), *following, *above]
    ports = {
        **{"CLKA": [clock], "CEA": high, "RESETA": low, "BLKSELA": 3 * low, "ADA": written},
        **{"CLKB": [clock], "CEB": high, "RESETB": low, "BLKSELB": 3 * low, "ADB": read, "OCE": high},
        **{"DI": [*ins, *(empty * low)], "DO": [*outs, *(next(bits) for _ in range(empty))]},
    }
    cells[name] = new_cell("SDPX9B", ("DO",), _MEMORY, **ports)
