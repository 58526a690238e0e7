"""An SDRAM at the pins of a netlist, as the numbers that `sdram.h` and `sdram_pins.h` simulate."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor

import numpy as np

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.sdram.chip import INPUT_HOLD, INPUT_SETUP, PATH_LEAST, PATH_MOST, SdramChip
from tilewright.fpga.sim.line import MemoryEdges
from verification.netlists.cells import ONE, ZERO, Numbers

#: Pins, as Amaranth names those of the resource: controls in the order of `SdramNets`, then those of several bits.
SDRAM = "sdram_0__"
CLOCK = f"{SDRAM}clk__io"
_CONTROLS = ("clk_en", "cs", "ras", "cas", "we")
_WIDE = {"ba": 4, "a": 16, "dqm": 4, "dq": 32}
#: How long a row may be open, in ns: data sheets have 100 or 120 us.
_ROW_OPEN_MOST = 100_000
#: Commands, by the number that RAS, CAS and WE are.
COMMANDS = ("LOAD MODE", "REFRESH", "PRECHARGE", "ACTIVE", "WRITE", "READ", "BURST TERMINATE")


def rules_of(chip: SdramChip, unit_ns: float) -> np.ndarray:
    """The rules of a chip as `SdramRules`, int64.

    Args:
        unit_ns: what times are counted in.
    """

    def least(ns: float) -> int:
        return ceil(ns / unit_ns - 1e-6)

    def most(ns: float) -> int:
        return floor(ns / unit_ns + 1e-6)

    fastest = [0] * 4
    for hz, latency in chip.cas:
        fastest[latency] = least(1e9 / hz - unit_ns / 2)  # a period is known no better than to a unit
    return np.array(
        [
            *(chip.word_bits, chip.bank_bits, chip.row_bits, chip.column_bits),
            *map(least, (chip.activate_to_column, chip.precharge, chip.row, chip.row_active)),
            most(_ROW_OPEN_MOST),
            *map(least, (chip.bank_to_bank, chip.write_recovery, chip.refresh)),
            *(chip.mode_cycles, least(1000 * chip.start_us), chip.start_refreshes, most(chip.refresh_interval)),
            *fastest,
            *map(least, (INPUT_SETUP, INPUT_HOLD, chip.access + PATH_MOST)),
            most(chip.hold + PATH_LEAST),
            least(chip.access),
        ],
        np.int64,
    )


def nets_of(numbers: Numbers) -> np.ndarray:
    """The nets of a chip's pins as `SdramNets`, int32.

    Raises:
        FpgaError: a pin is missing or has no register, registers are on several clocks, or the chip's is none.
    """
    clock = numbers.clocks.get(numbers.outputs.get(CLOCK, (ZERO, ZERO))[0])
    if clock is None:
        raise FpgaError(f"pin {CLOCK} of the netlist is not a clock")
    width = sum(label.startswith(f"{SDRAM}dq__io") for label in numbers.outputs)
    found: list[int] = [clock, registers_of(numbers), width]
    controls = [_driven(numbers.outputs, f"{SDRAM}{name}__io") for name in _CONTROLS]
    found += [net for net, _ in controls] + [off for _, off in controls]
    for name, most in _WIDE.items():
        labels = [label for i in range(most) if (label := f"{SDRAM}{name}__io[{i}]") in numbers.pins]
        if not labels:
            raise FpgaError(f"the netlist has no pin {SDRAM}{name}__io[0]")
        pairs = [_driven(numbers.outputs, label) for label in labels]
        left = most - len(pairs)
        found += [net for net, _ in pairs] + [ZERO] * left
        found += [off for _, off in pairs] + [ONE if name == "dq" else ZERO] * left
        if name == "dq":
            found += [numbers.pins[label] for label in labels] + [ZERO] * left
    return np.array(found, np.int32)


def registers_of(numbers: Numbers) -> int:
    """Returns the number of the clock of the registers at the pins.

    Raises:
        FpgaError: a pin without a register, or registers on several clocks.
    """
    written = {q: clock for *_, q, _, clock in numbers.registers}
    read = {d: clock for d, *_, clock in numbers.registers}
    labels = [label for label in numbers.outputs if label.startswith(SDRAM) and label != CLOCK]
    driven = {net for label in labels for net in numbers.outputs[label]} - {ZERO, ONE}
    taken = {numbers.pins[label] for label in labels if numbers.pins[label] not in driven} - {ZERO, ONE}
    clocks = {written.get(net) for net in driven} | {read.get(net) for net in taken}
    if len(clocks) != 1 or (clock := clocks.pop()) is None:
        raise FpgaError("the pins of the SDRAM do not all have registers, on one clock")
    return clock


def memory_edges(numbers: Numbers) -> MemoryEdges:
    """Edges of the first clock and of that of the registers at the pins. Raises FpgaError as `registers_of`."""
    period, first = numbers.edges[registers_of(numbers)]
    return MemoryEdges(numbers.edges[0][0], period, first)


def _driven(outputs: Mapping[str, tuple[int, int]], label: str) -> tuple[int, int]:
    if label not in outputs:
        raise FpgaError(f"the netlist has no output {label}")
    return outputs[label]
