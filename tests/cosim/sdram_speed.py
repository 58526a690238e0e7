"""Speed of the SDRAM behind its controller, simulated: `python -m tests.cosim.sdram_speed CONFIG:MHZ:CHIP_MHZ ...`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.cosim.runner import simulate
from tilewright.fpga.sdram.chip import SDRAM_32M, SdramChip
from tilewright.fpga.sdram.memory import SdramMemory
from tilewright.fpga.sim.sdram import with_sdram_text
from tilewright.isa.config import preset


def measure(
    name: str, mhz: float, chip_mhz: float, folder: Path, *, chip: SdramChip = SDRAM_32M, shared: bool = False
) -> dict[str, Any]:
    """Runs all benches of the memory with the bus of a preset, and clocks of the bus and of the chip in MHz; `shared`:
    they are one.

    Returns:
        "latency": (median, maximum) in cycles of the bus; "rate": bytes a cycle of the chip.
    """
    config, hz = preset(name), round(chip_mhz * 1e6)
    text = with_sdram_text(SdramMemory(config, chip, hz, shared=shared), chip, hz, "memory", shared=shared)
    result = folder / "speed.json"
    settings = {"size": chip.size, "window": 4096, "bus_bytes": config.bus_bytes, "seed": round(chip_mhz)}
    benches = "tests.cosim.memory_bench,tests.cosim.sdram_bench"
    more = {"result": result, "cocotb_log_level": "ERROR", "memory_ratio": chip_mhz / mhz}
    simulate(f"sdram_{name}{shared:d}", text, "memory", benches, **more, **settings)
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def main() -> None:
    """Prints a row of a table for each point."""
    print("| bus, clock, chip | open row | other row | response | reads | writes | both at once | scattered |")
    print("|---|---|---|---|---|---|---|---|")
    for point in sys.argv[1:]:
        name, mhz, chip_mhz = point.split(":")
        with tempfile.TemporaryDirectory() as folder:
            speed = measure(name, float(mhz), float(chip_mhz), Path(folder))
        cells = [f"{preset(name).axi_data_bits} bits, {mhz} MHz, {chip_mhz} MHz"]
        cells += [f"{median:g}; {most:g}" for median, most in speed["latency"].values()]
        cells += [f"{rate:.2f}" for rate in speed["rate"].values()]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
