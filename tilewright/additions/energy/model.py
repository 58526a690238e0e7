"""The terms of the energy model, and the model with its coefficients.

Energy of a run is a sum over events (`tilewright.energy.events`) of their number times what one costs on the machine;
that is a sum of `coefficient * term`, the terms being what the RTL has one of: products, lanes, bytes of the bus.
Memories on the chip cost what their tables say for a row, times a coefficient: how often an event really needs one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.energy.events import CAUSES, EVENTS
from tilewright.energy.memories import DRAM_PJ_PER_BYTE, DRAM_SOURCE, sram_pj
from tilewright.fpga.bare import designs
from tilewright.hw.sizes import SCRATCHPADS, pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BITS

#: What the energy is calibrated on apart: toggles of gates and the clock, and accesses to memories on the chip.
PARTS = ("logic", "memories")
#: The coefficients that are shipped, with the truth they come from.
CALIBRATION = Path(__file__).with_name("osu018.json")


def logic_terms(config: NpuConfig) -> dict[str, dict[str, float]]:
    """Terms of an event in the gates, without coefficients."""
    c = config
    lanes, products, bus = float(c.vector_lanes), float(c.macs_per_cycle), float(c.bus_bytes)
    window = float(c.depthwise * c.block_in * c.dw_lanes)
    # With several passes the elements that follow each other in a lane are of different channels: more bits change.
    through_lanes = {"elements": float(c.block_in), "of mixed channels": float(c.block_in * (c.vector_passes > 1))}
    return {
        "cycle": {
            "fixed": 1.0, "lanes": lanes, "lanes of one pass": lanes * (c.vector_passes == 1), "products": products,
            "outputs": float(c.block_out), "inputs": float(c.block_in), "bus": bus, "window": window,
            "row unit": float(c.row_unit), "row unit lanes": lanes * c.row_unit,
        },
        "product": {"fixed": 1.0, "outputs": float(c.block_out)},
        "multiplication": {"one": 1.0},
        "input": {"inputs": float(c.block_in), "products": products},
        "tile": {"products": products},
        "result": {"outputs": float(c.block_out)},
        "sum": {"outputs": float(c.block_out)},
        "window": {"inputs": float(c.block_in), "window": window},
        "emission": {"window": window},
        "post": through_lanes,
        "element": through_lanes,
        "operand": through_lanes,
        "parameter": {"lanes": lanes},
        "look-up": {"elements": float(c.block_in)},
        "row step": {"fixed": 1.0, "elements": float(c.block_in)},
        "row": {"fixed": 1.0},
        "row result": {"elements": float(c.block_in)},
        "beat read": {"fixed": 1.0, "bus": bus},
        "beat written": {"fixed": 1.0, "bus": bus},
        "padding": {"inputs": float(c.block_in)},
        "instruction": {"fixed": 1.0},
    }  # fmt: skip


@functools.lru_cache(maxsize=1024)
def memory_terms(config: NpuConfig) -> dict[str, dict[str, float]]:
    """Terms of an event in the memories on the chip, in pJ by the tables, without coefficients."""
    c = config
    act, wgt, acc, prm, lut = (
        sum(sram_pj(width, width * depth) for _ in range(count))
        for width, depth, count in (scratchpad(c) for scratchpad in SCRATCHPADS.values())
    )
    act /= c.act_banks
    prm *= c.vector_passes
    lut *= c.vector_passes
    bus = sram_pj(c.axi_data_bits, 128 * c.axi_data_bits)
    entry = INSTRUCTION_BITS + pc_bits(config)
    queue = sram_pj(entry, entry * c.queue_depth)
    loops = sram_pj(64, 512)
    return {
        "cycle": {"counters": sram_pj(64, 1024)},
        "product": {"loops": loops},
        "multiplication": {},
        "input": {"activations": act},
        "tile": {"weights": wgt},
        "result": {"accumulators": acc},
        "sum": {"accumulators": acc},
        "window": {"loops": loops},
        "emission": {},
        "post": {"accumulators": acc, "activations": act},
        "element": {"activations": act},
        "operand": {"activations": act},
        "parameter": {"parameters": prm},
        "look-up": {"tables": lut},
        "row step": {"activations": act, "tables": lut},
        "row": {"parameters": prm},
        "row result": {"activations": act, "parameters": prm},
        "beat read": {"buffer": bus, "activations": act},
        "beat written": {"buffer": bus, "activations": act},
        "padding": {"activations": act},
        "instruction": {"queue": queue},
    }


TERMS: dict[str, Callable[[NpuConfig], dict[str, dict[str, float]]]] = {"logic": logic_terms, "memories": memory_terms}


def names(part: str) -> list[tuple[str, str]]:
    """(event, term) of all coefficients of a part, in the order of `row`."""
    return [(event, term) for event, found in TERMS[part](NpuConfig()).items() for term in found]


def row(part: str, config: NpuConfig, counts: np.ndarray) -> np.ndarray:
    """The factor of each coefficient of a part in a run with these events, float64[coefficients]."""
    found = TERMS[part](config)
    return np.array([counts[EVENTS.index(event)] * found[event][term] for event, term in names(part)])


@dataclass(frozen=True)
class Energy:
    """Energy of a run, in pJ.

    Attributes:
        logic, memories: by event: gates and clock; memories on the chip.
        dram: external memory.
    """

    logic: dict[str, float]
    memories: dict[str, float]
    dram: float

    @property
    def chip(self) -> float:
        """Energy on the chip: logic and memories, without external memory."""
        return sum(self.logic.values()) + sum(self.memories.values())

    @property
    def total(self) -> float:
        return self.chip + self.dram

    def causes(self) -> dict[str, float]:
        """Returns pJ by cause (`events.CAUSES`), and of the external memory."""
        parts = (self.logic, self.memories)
        found = {cause: sum(part[event] for part in parts for event in of) for cause, of in CAUSES.items()}
        return found | {"dram": self.dram}

    def to_dict(self) -> dict[str, Any]:
        """Returns the energy for `--json`, in µJ."""
        return {
            "uj": self.total / 1e6,
            "chip_uj": self.chip / 1e6,
            "dram_uj": self.dram / 1e6,
            "logic_uj": sum(self.logic.values()) / 1e6,
            "memories_uj": sum(self.memories.values()) / 1e6,
            "causes_uj": {cause: pj / 1e6 for cause, pj in self.causes().items()},
        }


def _sizes(config: NpuConfig) -> dict[str, int]:
    return {"products": config.block_in * config.block_out} | {k: v for k, v in asdict(config).items() if k != "name"}


@dataclass(frozen=True)
class EnergyModel:
    """Coefficients of one technology.

    Attributes:
        technology: by name.
        coefficients: per part, event and term, in pJ, or for memories in accesses.
        error: mean and largest relative error on programs and machines held back from the fit.
        machines: configurations it was calibrated and judged on.
        designs: digests of their designs then (`tilewright.fpga.bare.designs`), by name.
    """

    technology: str
    coefficients: Mapping[str, Mapping[str, Mapping[str, float]]]
    error: Mapping[str, float]
    machines: tuple[NpuConfig, ...] = ()
    designs: Mapping[str, str] = field(default_factory=dict)
    dram_pj_per_byte: float = DRAM_PJ_PER_BYTE

    @property
    def measured(self) -> list[tuple[NpuConfig, str]]:
        """Machines of the calibration, each with the digest of the design that was measured."""
        return [(machine, self.designs.get(machine.name, "")) for machine in self.machines]

    @property
    def changed(self) -> list[str] | None:
        """Names of calibration machines whose design has changed since: see `tilewright.fpga.bare.designs.changed`."""
        return designs.changed(self.measured)

    def beyond(self, config: NpuConfig) -> list[str]:
        """The sizes of a configuration outside the range of the calibrated machines, as "name value"."""
        sizes = [_sizes(machine) for machine in self.machines]
        return [
            f"{name} {value}"
            for name, value in _sizes(config).items()
            if sizes and not min(s[name] for s in sizes) <= value <= max(s[name] for s in sizes)
        ]

    def costs(self, config: NpuConfig) -> dict[str, np.ndarray]:
        """pJ of one of each event, per part, [EVENTS]."""
        found = {}
        for part, terms in TERMS.items():
            own, values = self.coefficients[part], terms(config)
            found[part] = np.array([sum(own[e][term] * value for term, value in values[e].items()) for e in EVENTS])
        return found

    def energy(self, config: NpuConfig, counts: np.ndarray) -> Energy:
        """Returns the energy of a run with these numbers of events, float64 [EVENTS]."""
        logic, memories = (dict(zip(EVENTS, (cost * counts).tolist())) for cost in self.costs(config).values())
        beats = counts[EVENTS.index("beat read")] + counts[EVENTS.index("beat written")]
        return Energy(logic, memories, float(beats) * config.bus_bytes * self.dram_pj_per_byte)

    def totals(self, config: NpuConfig, counts: np.ndarray) -> np.ndarray:
        """Returns pJ of runs, external memory included, float64 [runs], with these events, float64 [runs, EVENTS]."""
        costs: np.ndarray = sum(self.costs(config).values(), np.zeros(len(EVENTS)))
        for event in ("beat read", "beat written"):
            costs[EVENTS.index(event)] += config.bus_bytes * self.dram_pj_per_byte
        pj: np.ndarray = counts @ costs
        return pj

    def sentence(self) -> str:
        """Technology, sources and error, for people."""
        return (
            f"energy by a model of {self.technology}, calibrated on toggles of its gates: error "
            f"{self.error['mean']:.1%} on average, {self.error['largest']:.1%} at most on what was held back; "
            f"DRAM {self.dram_pj_per_byte:.0f} pJ/B ({DRAM_SOURCE})"
        )
