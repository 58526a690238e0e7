"""The terms of the clock model, and the model with its coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tilewright.fpga.area.model import AreaModel, outside
from tilewright.fpga.bare import designs
from tilewright.isa.config import NpuConfig


def calibration_file(family: str) -> Path:
    """The file with the coefficients of a family."""
    return Path(__file__).with_name(f"{family}.json")


def terms(config: NpuConfig, lut: float) -> dict[str, float]:
    """The terms that make the slowest path long, without coefficients; `lut` counts LUTs by the area model.

    A wire reaches over a part of the placed area, whose side grows with the root of the LUTs. Selection among bytes of
    a bus, lanes or operands is a tree, whose depth grows with the logarithm.
    """
    return {
        "fixed": 1.0,
        "side of the area": math.sqrt(lut / 1000),
        "bytes of the bus": math.log2(config.bus_bytes),
        "lanes of VECTOR": math.log2(config.vector_lanes),
        "products": math.log2(config.macs_per_cycle),
    }


@dataclass(frozen=True)
class FmaxModel:
    """Coefficients of one family.

    Attributes:
        area: model of the family whose placements the coefficients are fitted to.
        coefficients: ns per term, of the period that nextpnr estimates after placement.
        routed: clock after routing over that estimate.
        error: the largest relative error on what was held back from the fit: placements, or bitstreams of a family that
            has the delays of another one; None where nothing was.
        designs: the machines it was calibrated and judged on, each with the digest of its design then.
        family: that it is for.
    """

    area: AreaModel
    coefficients: dict[str, float]
    routed: float
    error: float | None
    designs: tuple[tuple[NpuConfig, str], ...] = ()
    family: str = "ecp5"

    @property
    def evidence(self) -> str:
        """The stated error, and whose delays it has, for people."""
        said = "nothing was held back, so its error is not known"
        if self.error is not None:
            said = f"largest error on held-back points: {self.error:.1%}"
        if self.family == self.area.family:
            return said
        count = len(self.designs)
        return f"delays of {self.area.family} by {count} bitstream{'s' * (count != 1)} of {self.family}; {said}"

    @property
    def changed(self) -> list[str] | None:
        """Names of calibration machines whose design has changed since: see `designs.changed`."""
        return designs.changed(self.designs)

    def beyond(self, config: NpuConfig) -> list[str]:
        """The sizes of a configuration outside the range of the measured machines, as "name value (least..most)"."""
        return outside(config, self.designs, ("macs_per_cycle", "vector_lanes", "axi_data_bits"))

    def placed_mhz(self, config: NpuConfig) -> float:
        """The clock in MHz by nextpnr's estimate after placement."""
        found = terms(config, self.area.estimate(config).lut)
        return 1e3 / sum(self.coefficients[term] * value for term, value in found.items())

    def mhz(self, config: NpuConfig) -> float:
        """The clock in MHz after routing."""
        return self.routed * self.placed_mhz(config)
