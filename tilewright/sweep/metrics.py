"""`Metrics`: from a point and the results of its networks to the numbers that expressions of a space may use."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from tilewright.fpga import area, fmax
from tilewright.fpga.bare import designs, resources
from tilewright.runtime.energy import meter
from tilewright.sweep.axes import CONFIG_FIELDS, MEMORY_FIELDS
from tilewright.sweep.boards import CAPACITY
from tilewright.sweep.database import key_of
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.networks import Network
from tilewright.sweep.space import (
    AREA,
    DERIVED,
    ENERGIES,
    MODEL_CLOCK,
    NETWORK_TIME,
    PER_NETWORK,
    TIMES,
    Point,
    Space,
    network_key,
)


class Metrics:
    """The models and networks of a sweep, which make numbers of results.

    Attributes:
        known: names whose values are known before anything is computed.
        area_model: that gives the area, None where a tool counts.
        clock_model: that gives the clock, None where something else does.
        version: digest of the models.

    Raises:
        SpaceError: the space uses names that will never have a value.
    """

    def __init__(self, space: Space, networks: list[Network], tool: str) -> None:
        self.space, self.networks = space, networks
        self.known = _names_before_results(space, tool)
        resources.family_named(space.family)
        self.area_model = area.load(space.family) if tool == "model" else None
        uses = set().union(*(expression.names for expression in (*space.constraints, *space.objectives)))
        self._limit = fmax.load(space.family) if MODEL_CLOCK in uses else None
        self.clock_model = fmax.load(space.family) if space.clock_model and tool != "nextpnr" else None
        self.energy_model = meter().load()
        model = key_of(self.area_model.coefficients) if self.area_model is not None else designs.sources_digest()
        if self.clock_model is not None:
            model = key_of(model, self.clock_model.coefficients, self.clock_model.routed)
        if self._limit is not None:
            model = key_of(model, self._limit.coefficients, self._limit.routed)
        self.version = key_of(model, self.energy_model.coefficients)

    def before_results(self, point: Point) -> dict[str, float]:
        """Returns the values of a point without results: fields, sizes, and the area by the model."""
        values = self.space.values(point)
        if self.area_model is not None:
            counted = self.area_model.estimate(point.config)
            values |= {name: getattr(counted, name) for name in AREA}
        if self._limit is not None:
            values[MODEL_CLOCK] = self._limit.mhz(point.config)
        return values

    def of_results(self, point: Point, results: list[dict[str, Any]]) -> dict[str, float]:
        """Returns sizes, area and the networks' results of a point, weighted; see docs/sweeps.md for each.

        Args:
            results: rows of the database: one per network, and of the synthesis.
        """
        values: dict[str, float] = {"scratchpad_bytes": point.config.scratchpad_bytes}
        static = self.before_results(point)
        values |= {name: static[name] for name in (*AREA, MODEL_CLOCK) if name in static}
        for row in results:
            if "lut" in row:
                values |= {name: row[name] for name in (*AREA, "fmax_mhz") if row[name] is not None}
        by_network = {row["network"]: row | self.energy(point, row) for row in results if "network" in row}
        for row in by_network.values():
            row["dram_bytes"] = dram_bytes(row)
        weights = self.space.weights
        rows = [(weights[network.name], by_network[network.digest]) for network in self.networks]
        values |= self.speeds(point, values, {network.name: by_network[network.digest] for network in self.networks})
        macs = sum(weight * row["macs"] for weight, row in rows)
        cycles = values["cycles"]
        values |= {
            "utilization": sum(weight * row["bound_cycles"] for weight, row in rows) / cycles if cycles else 0.0,
            "npu_mac_fraction": sum(weight * row["npu_macs"] for weight, row in rows) / macs if macs else 0.0,
            **{name: sum(weight * row[name] for weight, row in rows) for name in ENERGIES},
        }
        for network in self.networks:
            row = by_network[network.digest]
            values |= {f"{name}_{network_key(network.name)}": row[name] for name in PER_NETWORK}
        return values

    def speeds(self, point: Point, values: dict[str, float], rows: dict[str, dict[str, Any]]) -> dict[str, float]:
        """Returns cycles, bytes and times of all networks and of each, from `cycles` and `dram_bytes` of each.

        Args:
            values: what else is known of the point, beside fields and sizes.
            rows: by name of the network.
        """
        weights = self.space.weights
        total = sum(weights[name] for name in rows) or 1.0
        cycles = sum(weights[name] * row["cycles"] for name, row in rows.items())
        logs = sum(weights[name] * math.log(max(1, row["cycles"])) for name, row in rows.items())
        found = {
            "cycles": cycles,
            "geomean_cycles": math.exp(logs / total),
            "dram_bytes": sum(weights[name] * row["dram_bytes"] for name, row in rows.items()),
        }
        for name, row in rows.items():
            found |= {f"{key}_{network_key(name)}": row[key] for key in ("cycles", "dram_bytes")}
        if (clock := self._clock_mhz(point, self.space.values(point) | values | found)) is not None:
            found |= {"clock_mhz": clock, "microseconds": cycles / clock}
            found["geomean_microseconds"] = found["geomean_cycles"] / clock
            found |= {f"{NETWORK_TIME}_{network_key(name)}": row["cycles"] / clock for name, row in rows.items()}
        return found

    def floors(self, point: Point, values: dict[str, float], rows: dict[str, dict[str, Any]]) -> dict[str, float]:
        """Returns the figures of `speeds` and the least energies, by the least `cycles` and `dram_bytes` of networks.

        A run pays the clock in every cycle and a beat of the bus, with the memory behind it, for every bus word; that
        its engines work is left out, so no run takes less.

        Args:
            values, rows: as for `speeds`.
        """
        found = self.speeds(point, values, rows)
        least = {name: self._least_energy(point, row) for name, row in rows.items()}
        for name, energies in least.items():
            found |= {f"{key}_{network_key(name)}": energies[key] for key in ENERGIES}
        weights = self.space.weights
        return found | {key: sum(weights[name] * own[key] for name, own in least.items()) for key in ENERGIES}

    def _least_energy(self, point: Point, row: dict[str, Any]) -> dict[str, float]:
        """Returns µJ that a network takes at least, by the cheaper direction of the bus."""
        events, found = meter().EVENTS, []
        for beat in ("beat read", "beat written"):
            counts = np.zeros(len(events))
            counts[events.index("cycle")] = row["cycles"]
            counts[events.index(beat)] = row["dram_bytes"] / point.config.bus_bytes
            found.append(self.energy_model.energy(point.config, counts))
        return dict(zip(ENERGIES, (min(e.total for e in found) / 1e6, min(e.chip for e in found) / 1e6)))

    def _clock_mhz(self, point: Point, values: dict[str, float]) -> float | None:
        """The clock of a point with these values. Raises `SpaceError` where an expression gives none."""
        if self.clock_model is not None:
            return self.clock_model.mhz(point.config)
        if self.space.clock is None:
            return values.get("fmax_mhz")
        clock = float(self.space.clock.value(values))
        if not 0 < clock < math.inf:
            raise SpaceError(f"{self.space.clock.where}: {self.space.clock.text!r} gives {clock:g} MHz")
        return clock

    def energy(self, point: Point, row: dict[str, Any]) -> dict[str, float]:
        """µJ of a network, from the events its result has. Raises `SpaceError` for a damaged result."""
        try:
            counts = np.array(json.loads(row["events"]), float)
        except (TypeError, ValueError):
            counts = np.zeros(0)
        events = len(meter().EVENTS)
        if counts.shape != (events,) or not np.isfinite(counts).all():
            raise SpaceError(f"result {row['key']!r}: events are {row['events']!r}, not {events} numbers")
        found = self.energy_model.energy(point.config, counts)
        return dict(zip(ENERGIES, (found.total / 1e6, found.chip / 1e6)))


def dram_bytes(row: dict[str, Any]) -> int:
    """Returns the bytes to and from memory of a network, by its result at full effort or on a rung."""
    known = row.get("dram_bytes")
    return int(row["dram_read_bytes"] + row["dram_written_bytes"] if known is None else known)


def _names_before_results(space: Space, tool: str) -> set[str]:
    """Names whose values are known before anything is computed. Raises `SpaceError` for names that never will be."""
    known = {*CONFIG_FIELDS, *MEMORY_FIELDS, *DERIVED, *CAPACITY, *(axis.field for axis in space.axes)}
    known |= {"small_weights", MODEL_CLOCK}
    if tool == "model":
        known |= set(AREA)
    clocked = space.clock is not None or space.clock_model
    times = {*TIMES, *(f"{NETWORK_TIME}_{network_key(name)}" for name in space.weights)}
    for expression in (*space.constraints, *space.objectives):
        unknown = expression.names & ({"fmax_mhz"} if clocked else {"fmax_mhz", *times})
        if unknown and tool != "nextpnr":
            needed = "--synth nextpnr" if clocked else "--clock MHZ, clock_mhz in the space or --synth nextpnr"
            raise SpaceError(f"{expression.where}: {sorted(unknown)[0]} needs {needed}")
    return known
