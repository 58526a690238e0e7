"""Parameters of an SDR SDRAM chip, and its times in cycles of a clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

#: Bits a READ or WRITE command moves, two words of 16 bits or one of 32, and cycles from one to the next.
COMMAND_BITS, COMMAND_CYCLES = 32, 2
#: A clock that the controller reaches beside any NPU, near the highest of the chips.
FAST_HZ = 120_000_000
#: Setup and hold time at the inputs of the chip including the board; and the least and most time from the FPGA's clock
#: edge over the clock pin, the chip and back to the input register, without the chip's own time. In ns.
INPUT_SETUP, INPUT_HOLD = 2.5, 2.0
PATH_LEAST, PATH_MOST = 2.5, 5.0


@dataclass(frozen=True, kw_only=True)
class SdramChip:
    """An SDR SDRAM. Times in ns unless named otherwise.

    Attributes:
        name: name for messages.
        word_bits: bits of a word, the width of the data bus: 16 or 32.
        bank_bits, row_bits, column_bits: bits of an address.
        activate_to_column: tRCD, ACTIVE to READ or WRITE.
        precharge: tRP.
        row: tRC, ACTIVE to ACTIVE of one bank.
        row_active: tRAS, ACTIVE to PRECHARGE.
        bank_to_bank: tRRD, ACTIVE to ACTIVE of another bank.
        write_recovery: tWR, last word written to PRECHARGE.
        refresh: tRFC, REFRESH to ACTIVE.
        refresh_period_ms: period in which every row must be refreshed once.
        start_us: wait after power-on.
        start_refreshes: REFRESH commands before the mode register is loaded.
        mode_cycles: tMRD, in cycles.
        access: tAC, clock to data at most. hold: tOH, clock to the end of data at least.
        cas: (highest clock in Hz, CAS latency in cycles), slowest first.
    """

    name: str
    word_bits: int = 16
    bank_bits: int = 2
    row_bits: int = 13
    column_bits: int = 9
    activate_to_column: float = 20
    precharge: float = 20
    row: float = 66
    row_active: float = 44
    bank_to_bank: float = 15
    write_recovery: float = 15
    refresh: float = 66
    refresh_period_ms: float = 64
    start_us: float = 200
    start_refreshes: int = 8
    mode_cycles: int = 2
    access: float = 6
    hold: float = 2.7
    cas: tuple[tuple[int, int], ...] = ((100_000_000, 2), (133_000_000, 3))

    @property
    def size(self) -> int:
        """Size of the memory in bytes."""
        return (self.word_bits // 8) << (self.bank_bits + self.row_bits + self.column_bits)

    @property
    def burst_words(self) -> int:
        """Words of a burst of the chip."""
        return COMMAND_BITS // self.word_bits

    @property
    def clocks_hz(self) -> tuple[int, int]:
        """Range of the memory's clock on a board in Hz, whatever the NPU's is: the slowest, and the chip's fastest."""
        return FAST_HZ, self.cas[-1][0]

    @property
    def refresh_interval(self) -> float:
        """Time between REFRESH commands in ns."""
        return self.refresh_period_ms * 1e6 / (1 << self.row_bits)


#: 4 banks x 8192 rows x 512 columns x 16 bits, with the slowest time of every chip of the class that boards carry
#: (MT48LC16M16A2-75, IS42S16160G-7, AS4C16M16SA-7, W9825G6KH-6).
SDRAM_32M = SdramChip(name="SDR SDRAM 16M x 16")
#: 4 banks x 2048 rows x 256 columns x 32 bits: the chip in the package of a GW2AR-18, with the slowest times of its
#: class (EM638325GD-7, MT48LC2M32B2-7). All rows are refreshed in half the time.
SDRAM_8M = SdramChip(
    name="SDR SDRAM 2M x 32", word_bits=32, row_bits=11, column_bits=8, row=70, row_active=49, bank_to_bank=14,
    refresh=70, refresh_period_ms=32, hold=2.5,
)  # fmt: skip


@dataclass(frozen=True)
class SdramCycles:
    """Times of a chip in cycles of one clock, and the phase of the chip's clock.

    The chip's clock comes `clock_delay` ns after the FPGA's: late enough for what the FPGA drives to be there, early
    enough for data to be back at the edge of the input registers. That edge is `late` cycles after the one before which
    the chip drives the data if nothing on the way took time.

    Raises:
        ValueError: the chip does not work at this clock.
    """

    cas: int
    activate_to_column: int
    precharge: int
    row_active: int
    write_recovery: int
    refresh: int
    refresh_interval: int
    start_intervals: int
    late: int
    clock_delay: float

    @staticmethod
    def of(chip: SdramChip, clock_hz: int) -> SdramCycles:
        latencies = [latency for highest, latency in chip.cas if clock_hz <= highest]
        cycle = 1e9 / clock_hz

        def cycles(ns: float) -> int:
            return ceil(ns / cycle - 1e-9)

        interval = int(chip.refresh_interval / cycle)
        if not latencies or interval < LONGEST_WAIT:
            lowest = ceil(1e4 * LONGEST_WAIT / chip.refresh_interval) / 10
            raise ValueError(
                f"the clock of {chip.name} must be {lowest:g}..{chip.cas[-1][0] / 1e6:g} MHz, not {clock_hz / 1e6:g}"
            )
        # Data is at the input register from clock_delay + access + PATH_MOST to clock_delay + cycle + hold +
        # PATH_LEAST after the FPGA's edge; commands must be INPUT_SETUP before the chip's edge, INPUT_HOLD after it.
        windows = {}
        for late in (0, 1):
            first = max(INPUT_SETUP, late * cycle - chip.hold - PATH_LEAST)
            last = min(cycle - INPUT_HOLD, (1 + late) * cycle - chip.access - PATH_MOST)
            windows[late] = (first, last)
        late = max(windows, key=lambda n: windows[n][1] - windows[n][0])
        activate, precharge = cycles(chip.activate_to_column), cycles(chip.precharge)
        return SdramCycles(
            cas=latencies[0],
            # ACTIVE commands follow each other at this distance at least, also to different banks.
            activate_to_column=max(activate, cycles(chip.bank_to_bank)),
            precharge=precharge,
            row_active=max(cycles(chip.row_active), cycles(chip.row) - precharge),
            write_recovery=cycles(chip.write_recovery),
            refresh=cycles(chip.refresh),
            refresh_interval=interval,
            start_intervals=ceil(chip.start_us * 1e3 / cycle / interval),
            late=late,
            clock_delay=sum(windows[late]) / 2,
        )


#: Most cycles that REFRESH may wait for the commands in progress, with room to spare: two segments, then PRECHARGE.
LONGEST_WAIT = 128


def pins(chip: SdramChip) -> dict[str, object]:
    """Ports to the registers of the pins. Everything is 1 where it is asserted, whatever the polarity of the pin."""
    from amaranth.lib.wiring import In, Out  # 0.2 s that parameters of chips need not wait for

    return {
        "sdram_clk_en": Out(1, init=1),
        "sdram_cs": Out(1, init=1),
        "sdram_ras": Out(1),
        "sdram_cas": Out(1),
        "sdram_we": Out(1),
        "sdram_ba": Out(chip.bank_bits),
        "sdram_a": Out(chip.row_bits),
        "sdram_dqm": Out(chip.word_bits // 8, init=(1 << chip.word_bits // 8) - 1),
        "sdram_dq_o": Out(chip.word_bits),
        "sdram_dq_oe": Out(1),
        "sdram_dq_i": In(chip.word_bits),
    }
