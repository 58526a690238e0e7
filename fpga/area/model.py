"""The terms of the area model, and the model with its coefficients.

Each resource is a sum of `coefficient * term`, LUTs used as memory counted apart; the terms (see `terms`) count
repeated parts of the RTL: lanes, products, bank ports, semaphores, levels of the loop nests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewright.fpga.area.memories import lut_cell, place, scratchpad_memories
from tilewright.fpga.bare import designs
from tilewright.fpga.bare.resources import Resources
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BITS
from tilewright.isa.instructions import Engine, queue_of
from tilewright.isa.timing import TABLE_WORD_BYTES

COUNTS = ("lut", "ff", "dsp", "bram")
#: Outputs of arrays that are fitted first, and the term of what each product of a further output costs more. It is
#: fitted to larger arrays alone: they take more than the small ones promise, and do not move the estimates of those.
SMALL_OUTPUTS = 16
BEYOND = "products of outputs beyond 16"
#: Families with multipliers of 25 bits by 18, which take the products of two outputs.
WIDE_MULTIPLIERS = ("xc7", "xcup")
_ENGINES = [e for e in Engine if e != Engine.FETCH]


def calibration_file(family: str) -> Path:
    """The file with the coefficients of a family."""
    return Path(__file__).with_name(f"{family}.json")


def known_cells(config: NpuConfig, family: str) -> dict[str, float]:
    """Resources that need no calibration: memories with countable cells (instruction queues too), less a queue head's
    register for every engine without a queue, and weights that multipliers of 25 bits have registers for, but not here.
    """
    queues = _queues(config)
    entry = INSTRUCTION_BITS + pc_bits(config)  # of a queue
    weights = 8 * config.macs_per_cycle * config.packed_products if family in WIDE_MULTIPLIERS else 0
    return {
        "lut": float(scratchpad_memories(config, family).lut_cells * lut_cell(family).luts),
        "ff": float((queues - len(_ENGINES)) * entry + weights),
        "dsp": 0.0,
        "bram": float(queues * place(entry, config.queue_depth, family, blocks=True).blocks),
    }


def _queues(config: NpuConfig) -> int:
    return len({queue_of(engine, config) for engine in _ENGINES})


def terms(config: NpuConfig, family: str) -> dict[str, dict[str, float]]:
    """The terms of every resource, without their coefficients."""
    c = config
    logic = {
        "fixed": 1.0,
        "lanes of VECTOR": float(c.vector_lanes),
        "outputs of the array": float(c.block_out),
        "products": float(c.macs_per_cycle),
        BEYOND: float(c.block_in * max(0, c.block_out - SMALL_OUTPUTS)),
        "semaphores": float(c.semaphores),
        # A level has a count, and a stride per address: three in GEMM, four in VECTOR.
        "fields of loop levels": 4.0 * c.gemm_loops + 5.0 * c.vector_loops,
        "bytes of the bus": float(c.bus_bytes),
        "address bits": float(c.axi_address_bits),
    }
    options = {
        # Roots, quotients and the memory of row results are there once, leaves of the trees in every lane.
        "row unit": float(c.row_unit),
        "lanes of the row unit": float(c.vector_lanes * c.row_unit),
        "decoder of weights": float(c.weight_codes > 0),
        "codes decoded in a cycle": float(c.weight_codes),
        "lanes with wide results": float(c.vector_lanes * c.wide_results),
        "pushes in pairs": float(c.window_pairs),
        "bytes of delay lines moved by two": float(c.delay_lines * c.dw_lanes * c.window_pairs),
    }
    packed = {"products of two outputs": float(c.macs_per_cycle // 2 * c.packed_products)}
    wide = family in WIDE_MULTIPLIERS  # whose blocks make sums of them, too
    lut = logic | {
        "products of two outputs": 0.0 if wide else packed["products of two outputs"],
        # STORE reads as many rows as a beat holds.
        "bank ports of ACT": float((3 * c.block_in + max(c.block_in, c.bus_bytes)) * c.act_banks),
        "byte selection of LUT": float(c.vector_lanes * min(c.bus_bytes, TABLE_WORD_BYTES) * c.table_lookup),
        "operands of the window": float(c.block_in * c.dw_lanes * c.depthwise),
        "bytes of delay lines": float(c.delay_lines * c.dw_lanes),  # their memories included
        "slices of the window": float(c.block_in * c.dw_lanes * (c.dw_slices - 1) * c.depthwise),
        "slots moved by two": float(c.block_in * c.dw_lanes * c.window_pairs),
        "second rows of ACT": float(c.block_in * c.act_banks * c.window_pairs),
        "columns of ACC": float(max(c.block_in, c.block_out) - c.dw_lanes),
        "multiplexers of memories": float(scratchpad_memories(c, family).mux_bits),
        "weights unpacked in a cycle": float(2 * c.bus_bytes * c.packed_weights),
        "chunks of a tile unpacked in pairs": float(c.macs_per_cycle // c.bus_bytes * c.packed_weights),
    }
    ff = logic | {
        "elements of a row": float(c.block_in),  # which VECTOR holds whole, in however many passes it works
        "window": float(c.block_in * c.dw_lanes * c.depthwise),
        "bytes of delay lines": float(c.delay_lines * c.dw_lanes),
    }
    dsp = {name: logic[name] for name in ("products", "lanes of VECTOR")} | {"row unit": options["row unit"]}
    if wide:
        dsp["products"] -= packed["products of two outputs"]
    codes = {"codes decoded in a cycle": options["codes decoded in a cycle"]}
    return {
        "lut": lut | options,
        "ff": ff | options | packed,
        "dsp": dsp | codes | {"lanes with wide results": options["lanes with wide results"]},
        "bram": {"fixed": 1.0, "scratchpads": float(scratchpad_memories(c, family).blocks)} | codes,
    }


#: Sizes and options that the terms grow with; memories, which are counted from their shapes, have no limits.
_SIZES = (
    "block_in", "block_out", "macs_per_cycle", "vector_lanes", "axi_data_bits", "axi_address_bits", "semaphores",
    "gemm_loops", "vector_loops", "row_unit", "weight_codes", "packed_weights", "wide_results", "window_pairs",
    "packed_products",
)  # fmt: skip


def outside(config: NpuConfig, designs: Iterable[tuple[NpuConfig, str]], names: Iterable[str]) -> list[str]:
    """The sizes of a configuration that no calibrated machine reaches, as "name value (least..most)" of these."""
    machines = [machine for machine, _ in designs]
    found = []
    for name in names:
        known = [getattr(machine, name) for machine in machines]
        if known and not min(known) <= getattr(config, name) <= max(known):
            found.append(f"{name} {getattr(config, name)} ({min(known)}..{max(known)})")
    return found


@dataclass(frozen=True)
class AreaModel:
    """Coefficients of one family.

    Attributes:
        coefficients: per resource, per term.
        error: per resource, the largest relative error on the points held back from the fit.
        designs: the machines it was calibrated and judged on, each with the digest of its design then.
    """

    family: str
    coefficients: dict[str, dict[str, float]]
    error: dict[str, float]
    designs: tuple[tuple[NpuConfig, str], ...] = ()

    @property
    def changed(self) -> list[str] | None:
        """Names of calibration machines whose design has changed since: see `designs.changed`."""
        return designs.changed(self.designs)

    def beyond(self, config: NpuConfig) -> list[str]:
        """The sizes of a configuration outside the range of the calibrated machines, as "name value (least..most)"; of
        one with a row unit the lanes are those of calibrated machines with it."""
        alike = [one for one in self.designs if one[0].row_unit >= config.row_unit]
        lanes = outside(config, alike, ["vector_lanes"])
        found = [one for one in outside(config, self.designs, _SIZES) if not one.startswith("vector_lanes")]
        return found + [f"{one} with row_unit {config.row_unit}" if config.row_unit else one for one in lanes]

    def estimate(self, config: NpuConfig) -> Resources:
        """Estimates the resource counts of a configuration."""
        found = {}
        known = known_cells(config, self.family)
        for count, values in terms(config, self.family).items():
            factors = self.coefficients[count]
            found[count] = round(known[count] + sum(factors.get(term, 0.0) * value for term, value in values.items()))
        return Resources(**found)
