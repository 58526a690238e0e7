"""Decodes the function of a DSP48E1 from the bits in the frames alone: by the database's names, and by the vendor's
user guide of the block (UG479).

What their inputs are is known from the flow: nothing is routed to OPMODE[5:0], ALUMODE[1:0] and CARRYIN, which read 1
then; the others have a multiplexer with constants, of which one must be selected: such an input is `None` else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

WORD_BITS = 32
#: Z of the ALU by OPMODE[6:4].
ADDS = {0: "nothing", 1: "PCIN", 3: "C"}


@dataclass(frozen=True)
class Block:
    """One block: its tile and half, the values of its modes (None: of unknown inputs), registers by letter."""

    place: str
    inmode: tuple[int | None, ...]
    alumode: tuple[int | None, ...]
    opmode: tuple[int | None, ...]
    carry: int
    uses_d: bool
    registers: dict[str, int]

    @property
    def adds(self) -> str:
        """The operand on multiplexer Z, "unknown" if its select bits are."""
        high = self.opmode[4:]
        return "unknown" if None in high else ADDS[sum(int(bit or 0) << n for n, bit in enumerate(high))]

    def result(self, a: int, b: int, more: int) -> int | None:
        """P for operands, `more` being C or PCIN; None where an unknown input decides."""
        modes = (*self.inmode, *self.alumode, *self.opmode)
        if None in modes:
            return None
        gates_a, subtracts_a, takes_a1 = self.inmode[1], self.inmode[3], self.inmode[0]
        assert not takes_a1 and not self.inmode[4], "A1 and B1 are other registers"
        assert not self.inmode[2] and not subtracts_a and not self.uses_d, "the pre-adder"
        assert self.opmode[:4] == (1, 0, 1, 0), "X and Y are the product"
        product = (0 if gates_a else a) * b
        z = 0 if self.adds == "nothing" else more
        assert not any(self.alumode), "Z + X + Y + carry"
        return z + product + self.carry


def read_blocks(root: Path, part: str, frames: str) -> list[Block]:
    """Every DSP block of the frames (text, as they are written to a file) that is in use."""
    device = part.rpartition("clg")[0]
    grid = json.loads((root / device / "tilegrid.json").read_text())
    words = {
        int(address, 16): [int(word, 16) for word in data.split(",")]
        for address, data in (line.split(" ") for line in frames.splitlines())
    }
    names: dict[str, list[tuple[str, list[tuple[int, int]]]]] = {}
    for side in "LR":
        lines = [line.split() for line in (root / f"segbits_dsp_{side.lower()}.db").read_text().splitlines()]
        assert not any("!" in bit for _, *bits in lines for bit in bits)
        names[f"DSP_{side}"] = [
            (name.partition(".")[2], [(int(f), int(b)) for f, b in (bit.split("_") for bit in bits)])
            for name, *bits in lines
        ]
    found = []
    for tile, entry in grid.items():
        if entry["type"] not in names:
            continue
        place = entry["bits"]["CLB_IO_CLK"]
        base, offset = int(place["baseaddr"], 0), place["offset"] * WORD_BITS

        def on(frame: int, bit: int, base: int = base, offset: int = offset) -> bool:
            row = words.get(base + frame, [0] * 101)[(offset + bit) // WORD_BITS]
            return bool(row >> (offset + bit) % WORD_BITS & 1)

        features = {name for name, bits in names[entry["type"]] if all(on(*bit) for bit in bits)}
        for half in ("DSP_0", "DSP_1"):
            mine = {name.replace(f"DSP48.{half}.", "") for name in features if half in name}
            if any("REG" in name for name in mine):
                found.append(_block(f"{tile}.{half}", half, mine))
    return found


def _block(place: str, half: str, features: set[str]) -> Block:
    def value(bus: str, index: int, has_constants: bool) -> int | None:
        inverted = f"ZIS_{bus}_INVERTED[{index}]" not in features
        if not has_constants:
            return 1 ^ inverted
        tied = [f[-5:-2] for f in features if re.fullmatch(rf"{half}_{bus}{index}\.DSP_(GND|VCC)_[LR]", f)]
        assert len(tied) <= 1, (place, bus, index)
        # With a constant the inverter must be off: the vendor's tool writes nothing else.
        return None if not tied or inverted else int(tied == ["VCC"])

    registers = {
        letter: 0 if f"{letter}REG_0" in features else 2 if f"{letter}REG_2" in features else 1 for letter in "AB"
    }
    registers |= {letter: int(f"Z{letter}REG[0]" not in features) for letter in ("C", "M", "P")}
    return Block(
        place,
        inmode=tuple(value("INMODE", n, True) for n in range(5)),
        alumode=tuple(value("ALUMODE", n, n >= 2) for n in range(4)),
        opmode=tuple(value("OPMODE", n, n == 6) for n in range(7)),
        carry=int("ZIS_CARRYIN_INVERTED" in features),
        uses_d="USE_DPORT[0]" in features,
        registers=registers,
    )
