"""The SDRAM controller against a model of the chip that checks every command, and an independent AXI4 master."""

import json
from pathlib import Path

import pytest

from fpga.sdram.chip import SDRAM_32M, SdramCycles
from fpga.sdram.memory import SdramMemory
from fpga.sim.sdram import MODEL, with_sdram_text
from isa.config import preset
from tests.cosim.runner import simulate

pytestmark = [pytest.mark.cosim, pytest.mark.slow]


#: Configuration and clock in MHz: buses of 32, 64 and 128 bits, and all that differs by clock: the edge at which words
#: are caught, the CAS latency, all times.
POINTS = [("tiny", 25), ("small", 90), ("large", 120)]


@pytest.mark.parametrize("name, mhz", POINTS)
def test_sdram(name: str, mhz: int, tmp_path: Path) -> None:
    config, hz = preset(name), mhz * 1_000_000
    text = with_sdram_text(SdramMemory(config, SDRAM_32M, hz), SDRAM_32M, hz, "memory")
    result = tmp_path / "speed.json"
    settings = {"size": SDRAM_32M.size, "window": 4096, "bus_bytes": config.bus_bytes, "seed": mhz}
    benches = "tests.cosim.memory_bench,tests.cosim.sdram_bench"
    simulate(f"sdram_{name}", text, "memory", benches, result=result, cocotb_log_level="ERROR", **settings)
    speed = json.loads(result.read_text())
    # Rates in bytes a cycle, of 2; latencies (median, maximum) in cycles. -s prints what docs/fpga.md says.
    assert min(speed["rate"][kind] for kind in ("read", "write", "both")) > 1.85 and speed["rate"]["scattered"] > 0.9
    assert speed["latency"]["open row"][0] <= 22 and speed["latency"]["other row"][1] <= 60
    print(config.axi_data_bits, mhz, speed)


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
    """What the controller is held against is not blind: every rule of sdram_chip.sv, broken once."""
    settings = {"cases": json.dumps(VIOLATIONS), "cocotb_log_level": "ERROR"}
    simulate("sdram_chip", MODEL.read_text(), "sdram_chip", "tests.cosim.sdram_chip_bench", **settings)


@pytest.mark.parametrize("hz", [10_000_000, 150_000_000])
def test_clocks_out_of_reach(hz: int) -> None:
    with pytest.raises(ValueError, match=r"the clock of SDR SDRAM 16M x 16 must be 16\.4\.\.133 MHz, not "):
        SdramCycles.of(SDRAM_32M, hz)


@pytest.mark.parametrize("mhz", range(17, 134, 4))
def test_cycles_of_the_data_sheet(mhz: int) -> None:
    """Whatever the clock, no time in ns is cut short, and data is at the pins while the input registers catch it."""
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
