"""The SDRAM controller against a model of the chip that checks every command, and an independent AXI4 master."""

import json
from pathlib import Path

import pytest

from tests.cosim.runner import simulate
from tests.cosim.sdram_speed import measure
from tilewright.fpga.sdram.chip import SDRAM_8M, SDRAM_32M, SdramCycles
from tilewright.fpga.sim.sdram import MODEL

pytestmark = [pytest.mark.cosim, pytest.mark.slow]


#: Configuration, clocks of the bus and of the chip in MHz: buses of 32, 64 and 128 bits, either clock the faster one,
#: and all that differs by the chip's: the edge at which words are caught, the CAS latency, all times.
POINTS = [
    ("tiny", 50, 25),
    *(pytest.param(*point, marks=pytest.mark.long) for point in (("tiny", 101, 25), ("small", 90, 90))),
    ("large", 37, 120),
]


@pytest.mark.parametrize("name, mhz, chip_mhz", POINTS)
def test_sdram(name: str, mhz: int, chip_mhz: int, tmp_path: Path) -> None:
    speed = measure(name, mhz, chip_mhz, tmp_path)
    # Rates in bytes a cycle of the chip, of 2; latencies (median, maximum) in cycles of the bus.
    rate, latency = speed["rate"], speed["latency"]
    assert min(rate[kind] for kind in ("read", "write", "both")) > 1.85 and rate["scattered"] > 0.85
    there = 16 + 20 * mhz / chip_mhz
    assert latency["open row"][0] <= there and latency["other row"][1] <= there + 36 * mhz / chip_mhz


@pytest.mark.parametrize("mhz", [54, pytest.param(81, marks=pytest.mark.long)])
def test_a_chip_of_32_bits_on_the_clock_of_the_bus(mhz: int, tmp_path: Path) -> None:
    speed = measure("tiny", mhz, mhz, tmp_path, chip=SDRAM_8M, shared=True)
    rate, latency = speed["rate"], speed["latency"]
    assert min(rate[kind] for kind in ("read", "write", "both")) > 1.85 and rate["scattered"] > 0.85
    assert latency["open row"][0] <= 20 and latency["other row"][1] <= 40


#: (after initialisation, commands, first violation): a command is its name, cycles after the one before, bank, address.
#: A cycle lasts 10 ns.
ACTIVE = ("active", 2, 0, 5)
VIOLATIONS = {
    "in order": (True, [ACTIVE, ("write", 2, 0, 0), ("read", 2, 0, 0), ("precharge", 3, 0, 0), ("active", 2, 0, 6)], 0),
    "start": (False, [("precharge", 1, 0, 1024)], 1),
    "mode without refreshes": (False, [("precharge", 20_010, 0, 1024), ("mode", 2, 0, 0x21)], 2),
    "bursts of four": (True, [("mode", 9, 0, 0x22)], 3),
    "active at once": (False, [("active", 20_010, 0, 0)], 4),
    "open": (True, [ACTIVE, ("active", 7, 0, 6)], 5),
    "tRP": (True, [ACTIVE, ("precharge", 6, 0, 0), ("active", 1, 0, 6)], 6),
    "tRRD": (True, [ACTIVE, ("active", 1, 1, 5)], 7),
    "cut": (True, [ACTIVE, ("read", 4, 0, 0), ("precharge", 1, 0, 0)], 8),
    "tRAS": (True, [ACTIVE, ("precharge", 4, 0, 0)], 9),
    "tWR": (True, [ACTIVE, ("write", 4, 0, 0), ("precharge", 2, 0, 0)], 10),
    "refresh with an open row": (True, [ACTIVE, ("refresh", 7, 0, 0)], 11),
    "refresh before tRP": (True, [ACTIVE, ("precharge", 7, 0, 1024), ("refresh", 1, 0, 0)], 11),
    "no refreshes": (True, [("active", 8 * 782, 0, 5)], 12),
    "tRFC": (True, [("refresh", 2, 0, 0), ("active", 6, 0, 5)], 13),
    "tMRD": (True, [("mode", 9, 0, 0x21), ("active", 1, 0, 5)], 13),
    "bus": (True, [ACTIVE, ("read", 2, 0, 0), ("write", 3, 0, 0)], 14),
    "tRCD": (True, [ACTIVE, ("read", 1, 0, 0)], 15),
    "closed row": (True, [("read", 2, 0, 0)], 15),
    "nobody drives": (True, [ACTIVE, ("write undriven", 2, 0, 0)], 16),
}


def test_the_model_of_the_chip_finds_violations() -> None:
    """The model of the chip that the controller is tested with detects each violation of sdram_chip.sv's rules."""
    settings = {"cases": json.dumps(VIOLATIONS), "cocotb_log_level": "ERROR"}
    simulate("sdram_chip", MODEL.read_text(), "sdram_chip", "tests.cosim.sdram_chip_bench", **settings)


@pytest.mark.parametrize("hz", [10_000_000, 150_000_000])
def test_clocks_out_of_reach(hz: int) -> None:
    with pytest.raises(ValueError, match=r"the clock of SDR SDRAM 16M x 16 must be 16\.4\.\.133 MHz, not "):
        SdramCycles.of(SDRAM_32M, hz)


@pytest.mark.parametrize("mhz", range(17, 134, 4))
def test_cycles_of_the_data_sheet(mhz: int) -> None:
    """No time in ns is cut short at any clock, and data is at the pins while the input registers catch it."""
    t, chip, ns = SdramCycles.of(SDRAM_32M, mhz * 1_000_000), SDRAM_32M, 1000 / mhz
    for cycles, least in (
        (t.activate_to_column, chip.activate_to_column), (t.precharge, chip.precharge), (t.refresh, chip.refresh),
        (t.row_active, chip.row_active), (t.row_active + t.precharge, chip.row),
        (t.write_recovery, chip.write_recovery), (t.activate_to_column, chip.bank_to_bank),
        (t.start_intervals * t.refresh_interval, 1000 * chip.start_us),
    ):  # fmt: skip
        assert cycles * ns >= least - 1e-6
    assert t.refresh_interval * ns * 8192 <= 64e6
    edge = (1 + t.late) * ns  # after the edge at which the FPGA drives READ, and CAS latency - 1 cycles
    assert t.clock_delay + chip.access + 5 <= edge <= t.clock_delay + ns + chip.hold + 2.5
    assert 2.5 <= t.clock_delay <= ns - 2
