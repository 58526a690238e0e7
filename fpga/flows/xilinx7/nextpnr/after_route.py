"""Script for nextpnr's Python after routing. Writes data that nextpnr's own files lack to `top.blocks.json`:

- `widths`: of the ports of every RAMB36E1, by site.
- `dsp_path`: the slowest path from or to a DSP block: its ns and its cells, each with the delays of the wire before
  it and of the way through it. nextpnr's timing knows no DSP
  blocks, so its clock ignores these paths. Delays of wires are nextpnr's, those of cells the slow ones of the
  database's timings (`timings/*.sdf`).

It runs in nextpnr's Python, without this package: hence a folder of its own.
"""

import json
import sys
from typing import Any

ctx: Any = globals()["ctx"]
PORTS = [f"{kind}_WIDTH_{port}" for kind in ("READ", "WRITE") for port in "AB"]
DSP = "DSP48E1_DSP48E1"
#: Delays from the clock to the outputs, ns: flip-flop, LUT as memory or shift register, block RAM, processing system
#: (not known; its outputs have LUTs behind them).
CLOCKED = {
    "SLICE_FFX": 0.322,
    "SLICE_LUTX": 1.482,
    "RAMB18E1_RAMB18E1": 2.454,
    "RAMB36E1_RAMB36E1": 2.454,
    "PS7_PS7": 2.0,
}
#: Through a cell, the slowest way, and from the carry of the one before.
THROUGH = {"SLICE_LUTX": 0.157, "CARRY4": 0.642, "SELMUX2_1": 0.3}
CARRIED = 0.334
#: Inputs without a path through the cell: the write port of a LUT that is a memory.
WRITTEN = {"SLICE_LUTX": {"CLK", "WE", "WA", "DI"}}
#: Until a clock that takes an input, but for DSP blocks: the slowest input.
SETUP = {
    "SLICE_FFX": 0.109,
    "SLICE_LUTX": 0.654,
    "RAMB18E1_RAMB18E1": 0.566,
    "RAMB36E1_RAMB36E1": 0.566,
    "PS7_PS7": 1.0,
}
#: DSP block: from the clock to P and PCOUT, by the register that is last; through it; until the clock.
LAST_P, LAST_M, LAST_A = (0.434, 0.478), (2.305, 2.500), (4.009, 4.206)
C_THROUGH, PCIN_THROUGH = (1.820, 2.016), (1.518, 1.713)
#: Until the clock: to the first register, to M and P where there is none before, and from A and B to P.
REGISTERED, CONTROL = 0.362, 0.589
FACTOR_TO_M, FACTOR_TO_P, C_TO_P, PCIN_TO_P = 1.928, 3.722, 1.701, 1.400
#: Drivers that are no part of a path.
CONSTANT = ("PSEUDO_GND", "PSEUDO_VCC", "BUFGCTRL")

#: A time in ns, and the last cell of its path: its name, delays of the wire to it and through it, the cell before.
Link = tuple[str, float, float, Any]
Arrival = tuple[float, Link | None]
NEVER: Arrival = (float("-inf"), None)


def all_inputs() -> dict[str, list[tuple[str, str, str, float]]]:
    """Connected inputs of every cell: port, the cell and the port that drive it, delay of the wire in ns. Two LUTs of a
    site have inputs of each other, which do not count: nextpnr notes those a LUT had before.
    """
    own: dict[str, set[str]] = {}
    found: dict[str, list[tuple[str, str, str, float]]] = {str(name): [] for name, _ in ctx.cells}
    for name, cell in ctx.cells:
        if cell.type == "SLICE_LUTX":
            noted = {str(key).removeprefix("X_ORIG_PORT_") for key, _ in cell.attrs}
            own[str(name)] = {port for port in noted if port.startswith("A")}
    for _name, net in ctx.nets:
        if net.driver.cell is None or str(net.driver.cell.type) in CONSTANT:
            continue
        driver, source = str(net.driver.cell.name), str(net.driver.port)
        for user in net.users:
            name, port = str(user.cell.name), str(user.port)
            if port.startswith("A") and port not in (own.get(name) or {port}):
                continue
            found[name].append((port, driver, source, ctx.getDelayNS(ctx.getNetinfoRouteDelay(net, user))))
    return found


def _start(delay: float, name: str) -> Arrival:
    return delay, (name, 0.0, delay, None)


class Paths:
    """Latest arrivals in ns at outputs of cells: of paths from any register, or (`dsp`) from those of DSP blocks."""

    def __init__(self) -> None:
        cells = {str(name): cell for name, cell in ctx.cells}
        self.kinds = {name: str(cell.type) for name, cell in cells.items()}
        self.inputs = all_inputs()
        params = {name: {k: str(v) for k, v in cells[name].params} for name, kind in self.kinds.items() if kind == DSP}
        self.registers = {n: {x: int(p.get(f"{x}REG", "1"), 2) for x in "ABCMP"} for n, p in params.items()}
        self.clocked = {
            name
            for name, kind in self.kinds.items()
            if kind in CLOCKED and (kind != "SLICE_LUTX" or any(p == "CLK" and v.net for p, v in cells[name].ports))
        }
        self.known: dict[tuple[str, str, bool], Arrival] = {}

    def arrival(self, name: str, port: str, dsp: bool) -> Arrival:
        """The latest arrival at an output of a cell."""
        kind = self.kinds[name]
        key = (name, port[:5] if kind == DSP else port if kind == "CARRY4" else "", dsp)
        if key not in self.known:
            start, through = self._block(name, port) if kind == DSP else self._cell(name, dsp)
            for entry, driver, source, wire in self.inputs[name]:
                delay = through.get(entry.rstrip("0123456789"))
                if delay is not None and not (kind == "CARRY4" and entry[-1].isdigit() and entry[-1] > port[-1]):
                    time, link = self.arrival(driver, source, dsp)
                    if time + wire + delay > start[0]:
                        start = (time + wire + delay, (name, wire, delay, link))
            self.known[key] = start
        return self.known[key]

    def _block(self, name: str, port: str) -> tuple[Arrival, dict[str, float]]:
        """The start of paths at an output of a DSP block, and the delays through the block in ns, by input."""
        registers, cascaded = self.registers[name], port.startswith("PCOUT")
        if registers["P"]:
            return _start(LAST_P[cascaded], name), {}
        through = {"PCIN": PCIN_THROUGH[cascaded]} | ({} if registers["C"] else {"C": C_THROUGH[cascaded]})
        return _start((LAST_M if registers["M"] else LAST_A)[cascaded], name), through

    def _cell(self, name: str, dsp: bool) -> tuple[Arrival, dict[str, float]]:
        kind = self.kinds[name]
        start = NEVER if dsp or name not in self.clocked else _start(CLOCKED[kind], name)
        delay = THROUGH.get(kind)
        if delay is None:
            return start, {}
        ports = {port.rstrip("0123456789") for port, *_ in self.inputs[name]} - WRITTEN.get(kind, set())
        return start, dict.fromkeys(ports, delay) | ({"CIN": CARRIED} if "CIN" in ports else {})

    def setup(self, name: str, port: str) -> float | None:
        """Setup time in ns of an input before its clock; None where no register takes it."""
        bus = port.rstrip("0123456789")
        if self.kinds[name] != DSP:
            return SETUP[self.kinds[name]] if name in self.clocked and not self._passes(name, bus) else None
        registers = self.registers[name]
        if bus in ("A", "B"):
            return REGISTERED if registers[bus] else FACTOR_TO_M if registers["M"] else FACTOR_TO_P
        if bus == "C" and registers["C"]:
            return REGISTERED
        if bus in ("C", "PCIN"):
            return (C_TO_P if bus == "C" else PCIN_TO_P) if registers["P"] else None
        return CONTROL

    def _passes(self, name: str, bus: str) -> bool:
        """True for an address of a LUT memory that is read."""
        return self.kinds[name] == "SLICE_LUTX" and bus == "A"

    def slowest(self) -> dict[str, Any]:
        """The slowest path from or to a DSP block."""
        worst = NEVER
        for name, inputs in self.inputs.items():
            for port, driver, source, wire in inputs:
                if port in ("CK", "CLK") or "CLK" in port or (setup := self.setup(name, port)) is None:
                    continue
                time, link = self.arrival(driver, source, self.kinds[name] != DSP)
                if time + wire + setup > worst[0]:
                    worst = (time + wire + setup, (f"{name}/{port}", wire, setup, link))
        time, link = worst
        cells: list[dict[str, Any]] = []
        while link is not None:
            name, wire, delay, link = link
            cells.insert(0, {"cell": name, "wire": round(wire, 3), "logic": delay})
        return {"ns": round(time, 3), "cells": cells} if cells else {}


def widths() -> dict[str, dict[str, int]]:
    found = {}
    for _name, cell in ctx.cells:
        if cell.type == "RAMB36E1_RAMB36E1":
            params = {key: str(value) for key, value in cell.params}
            found[str(cell.bel)] = {port: int(params.get(port, "0"), 2) for port in PORTS}
    return found


sys.setrecursionlimit(100_000)
with open("top.blocks.json", "w", encoding="utf-8") as file:  # the folder of the build
    json.dump({"widths": widths(), "dsp_path": Paths().slowest()}, file)
