"""Netlists of ECP5 cells written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.fpga.flows.netlist import Bit, Module
from verification.netlists.cells import BLOCK_WORDS
from verification.netlists.ecp5_cells import INIT_BITS, INIT_WORDS
from verification.netlists.netlist import RX, TX

#: Bits of a word of a block RAM.
WORD = 18


class Hand:
    """A module of cells that are added one by one. It has the pins of a serial line, which stay high."""

    def __init__(self) -> None:
        self.module: Module = {"cells": {}, "ports": {}}
        self._nets = 2
        self.pin_in(RX)
        self.pin_out(TX, "1")

    def net(self) -> int:
        self._nets += 1
        return self._nets - 1

    def cell(self, kind: str, connections: dict[str, list[Bit]], **parameters: Any) -> None:
        name = f"{kind}{len(self.module['cells'])}"
        self.module["cells"][name] = {"type": kind, "connections": connections, "parameters": parameters}

    def pll(self, **outputs: tuple[int, int]) -> list[int]:
        """Clocks, each with its divider and its phase in cycles of the oscillator."""
        connections: dict[str, list[Bit]] = {"LOCK": [self.net()]}
        parameters = {}
        for name, (divider, phase) in outputs.items():
            connections[name] = [self.net()]
            numbers = {"DIV": divider, "CPHASE": phase, "FPHASE": 0}
            parameters |= {f"{name}_ENABLE": "ENABLED", **{f"{name}_{k}": f"{v:032b}" for k, v in numbers.items()}}
        self.cell("EHXPLLL", connections, **parameters)
        return [connections[name][0] for name in outputs]  # type: ignore[misc]

    def inverse(self, net: Bit) -> int:
        out = self.net()
        self.cell("LUT4", {"A": [net], "B": ["0"], "C": ["0"], "D": ["0"], "Z": [out]}, INIT=f"{0x5555:016b}")
        return out

    def register(self, clock: Bit, data: Bit, *, out: int = 0, high: bool = False) -> int:
        """`high`: after power-on."""
        out = out or self.net()
        connections: dict[str, list[Bit]] = {"CLK": [clock], "DI": [data], "LSR": ["0"], "Q": [out]}
        self.cell("TRELLIS_FF", connections, CEMUX="1", REGSET="SET" if high else "RESET")
        return out

    def toggle(self, clock: Bit) -> int:
        """Returns a register that changes at every edge."""
        out = self.net()
        return self.register(clock, self.inverse(out), out=out)

    def rom(self, clock: Bit, address: Sequence[Bit], out: list[int], words: Sequence[int]) -> None:
        """A block RAM of 18 bits that is read in every cycle."""
        connections: dict[str, list[Bit]] = {f"AD{port}{i}": ["0"] for port in "AB" for i in range(14)}
        connections |= {f"ADA{4 + i}": [bit] for i, bit in enumerate(address)}
        connections |= {f"DOA{i}": [bit] for i, bit in enumerate(out)}
        connections |= {"CLKA": [clock], "CLKB": [clock], "CEA": ["1"], "CEB": ["0"]}
        rows = [words[i : i + INIT_WORDS] for i in range(0, BLOCK_WORDS, INIT_WORDS)]
        values = [sum(word << INIT_BITS * i for i, word in enumerate(row)) for row in rows]
        self.cell("DP16KD", connections, **{f"INITVAL_{row:02X}": f"{value:b}" for row, value in enumerate(values)})

    def pin_in(self, name: str) -> int:
        inner = self.net()
        self._buffer(name, "INPUT", O=inner)
        return inner

    def pin_out(self, name: str, inner: Bit) -> None:
        self._buffer(name, "OUTPUT", I=inner, T="0")

    def pin_both(self, name: str, data: Bit, off: Bit) -> int:
        inner = self.net()
        self._buffer(name, "BIDIR", I=data, T=off, O=inner)
        return inner

    def _buffer(self, name: str, direction: str, **connections: Bit) -> None:
        pad = self.net()
        self.cell("TRELLIS_IO", {"B": [pad], **{port: [bit] for port, bit in connections.items()}}, DIR=direction)
        port, _, index = name.partition("[")
        bits = self.module["ports"].setdefault(port, {"bits": []})["bits"]
        assert not index or int(index[:-1]) == len(bits)
        bits.append(pad)
