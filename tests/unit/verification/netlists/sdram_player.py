"""A netlist that plays commands from block RAMs to the pins of an SDRAM, one in each cycle, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.unit.verification.netlists.hand_netlists import WORD, Hand
from tilewright.fpga.flows.netlist import Bit, Module
from tilewright.fpga.sdram.chip import SdramChip
from verification.netlists.cells import BLOCK_WORDS
from verification.netlists.netlist import NetlistLine

HZ = 100_000_000
#: A small chip that soon is ready.
CHIP = SdramChip(name="small", row_bits=11, start_us=0.3, start_refreshes=2)
#: Cycles of the PLL's oscillator in one of the clock, and how much later the chip's is.
DIVIDER, LATER = 8, 4
#: Bits of the data that are played, and of an address; bits of the address of a word of the block RAMs.
DATA_BITS, ADDRESS_BITS, NEXT_BITS = 4, 11, 10


@dataclass(frozen=True)
class Step:
    """Commands and data of the player in one cycle.

    Attributes:
        command: RAS, CAS and WE, 1 where asserted.
        bank, address, mask: as the chip gets them; `mask` is for both bytes.
        data: low bits of what is driven, None = nothing is. The others are 0.
    """

    command: int = 0
    bank: int = 0
    address: int = 0
    data: int | None = None
    mask: int = 0

    def bits(self) -> int:
        """The step as a number of `2 * WORD - NEXT_BITS` bits, 0 for a cycle without anything."""
        found = self.data or 0
        fields = ((self.data is not None, 1), (self.command, 3), (self.bank, 2), (self.mask, 1))
        at = DATA_BITS
        for value, width in (*fields, (self.address, ADDRESS_BITS)):
            found |= int(value) << at
            at += width
        return found


NOP = Step()
REFRESH = Step(0b110)
PRECHARGE_ALL = Step(0b101, address=1 << 10)


def load_mode(cas: int = 2, words: int = 2) -> Step:
    return Step(0b111, address=cas << 4 | words.bit_length() - 1)


def active(bank: int = 0, row: int = 5) -> Step:
    return Step(0b100, bank, row)


def read(bank: int = 0, column: int = 0, **more: int) -> Step:
    return Step(0b010, bank, column, **more)


def write(data: int, bank: int = 0, column: int = 0, **more: int) -> Step:
    return Step(0b011, bank, column, data, **more)


def precharge(bank: int = 0) -> Step:
    return Step(0b101, bank)


def player(steps: Sequence[Step], chip: SdramChip = CHIP, *, later: int = LATER, seed: int = 0) -> NetlistLine:
    """Plays the steps once, then nothing. Data that comes back is at the pins `led_*`."""
    return NetlistLine(player_cells(steps, chip, later), clock_hz=HZ, baud=HZ // 10, sdram=chip, seed=seed)


def player_cells(steps: Sequence[Step], chip: SdramChip = CHIP, later: int = LATER) -> Module:
    """Returns the netlist of `player`."""
    hand = Hand()
    clock, chip_clock = hand.pll(CLKOP=(DIVIDER, 3), CLKOS=(DIVIDER, 3 + later))
    assert len(steps) < BLOCK_WORDS
    words = [step.bits() << NEXT_BITS | i + 1 for i, step in enumerate(steps)]
    words += [NOP.bits() << NEXT_BITS | len(steps)] * (BLOCK_WORDS - len(steps))
    nets = [hand.net() for _ in range(2 * WORD)]
    for half in range(2):
        part = [word >> WORD * half & (1 << WORD) - 1 for word in words]
        hand.rom(clock, nets[:NEXT_BITS], nets[WORD * half : WORD * (half + 1)], part)
    rest = iter(nets[NEXT_BITS:])
    data = [next(rest) for _ in range(DATA_BITS)]
    drives = next(rest)
    we, cas, ras = (next(rest) for _ in range(3))
    bank, mask = [next(rest) for _ in range(2)], next(rest)
    address = [next(rest) for _ in range(ADDRESS_BITS)]

    out = hand.net()
    hand.cell("ODDRX1F", {"D0": ["1"], "D1": ["0"], "RST": ["0"], "SCLK": [chip_clock], "Q": [out]})
    hand.pin_out("sdram_0__clk__io", out)
    low: dict[str, Bit] = {"cs": "0"} | {n: hand.inverse(x) for n, x in (("ras", ras), ("cas", cas), ("we", we))}
    for name, net in (("clk_en", "1"), *low.items()):
        hand.pin_out(f"sdram_0__{name}__io", hand.register(clock, net, high=name != "cs"))
    for name, bits in (("ba", bank), ("a", address), ("dqm", [mask, mask])):
        for i, bit in enumerate(bits):
            hand.pin_out(f"sdram_0__{name}__io[{i}]", hand.register(clock, bit))
    off = hand.inverse(drives)
    for i in range(chip.word_bits):
        bit: Bit = data[i] if i < DATA_BITS else "0"
        pins = hand.register(clock, bit), hand.register(clock, off, high=True)
        hand.pin_out(f"led_{i}__io", hand.register(clock, hand.pin_both(f"sdram_0__dq__io[{i}]", *pins)))
    return hand.module


def played(line: NetlistLine, cycles: int) -> list[int]:
    """Runs it up to a cycle: the data that came back, in each since power-on (0 during the reset of the board).

    Words of a READ in step i are here from cycle i + CAS latency + 2 on: two registers, and half a cycle to the chip.
    """
    found = [0] * line.cycles
    for _ in range(line.cycles, cycles):
        line.run(1)
        found.append(sum(line.level(f"led_{i}__io") << i for i in range(DATA_BITS)))
    return found
