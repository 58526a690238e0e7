"""The page: tables made of the data, put into the template with style, script and plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from tilewright.measure.clock import Clock, show
from tilewright.measure.labels import short_name
from tilewright.runtime.energy import meter
from tilewright.simulator.attribution import LOSSES
from tilewright.sweep.inside import Inside
from tilewright.sweep.report.advice import Advice, axis_table, beyond
from tilewright.sweep.report.data import SweepData
from tilewright.sweep.report.explore import json_text, page_data
from tilewright.sweep.report.inside import Insides
from tilewright.sweep.report.plots import Plot
from tilewright.sweep.report.text import number

_COLUMNS = (
    "milliseconds", "clock_mhz", "cycles", "utilization", "microjoules", "dram_bytes", "scratchpad_bytes", "lut", "ff",
    "dsp", "bram", "fmax_mhz",
)  # fmt: skip
_HEADINGS = {
    "utilization": "util", "microjoules": "µJ", "dram_bytes": "DRAM bytes", "scratchpad_bytes": "on chip",
    "fmax_mhz": "nextpnr MHz", "milliseconds": "ms", "clock_mhz": "MHz",
}  # fmt: skip
_BEST = 10


def render(
    data: SweepData,
    fronts: Sequence[Plot],
    effects: Sequence[Plot],
    insides: Insides,
    plots: Sequence[tuple[Inside, Sequence[Plot]]],
    missing: Sequence[str],
    advice: Advice,
    chosen: Sequence[int],
) -> str:
    """The whole page; it needs nothing but itself.

    Args:
        insides: of all points that are known from the inside.
        plots: of each network on the first of the `chosen` points.
        missing: networks whose models are gone.
        chosen: numbers of the points that are compared first.
    """
    here = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((here / "page.html").read_text(encoding="utf-8"))
    return template.render(
        style=(here / "style.css").read_text(encoding="utf-8"),
        script="".join((here / name).read_text(encoding="utf-8") for name in ("script.js", "explore.js")),
        explored=json_text(page_data(data, insides, chosen)),
        sweep=data.row,
        facts=sweep_facts(data),
        advice=advice.sentences,
        points=_points_table(data),
        networks=[network_table(data, name, digest) for name, digest in data.networks.items()],
        fronts=fronts,
        title=page_title(data),
        constant=[
            f"{q.label} {number(data.points[0]['metrics'][q.key])}" for q in data.quantities if q not in data.changing
        ],
        effects=effects,
        axis_table=axis_table(data),
        insides=[_inside_table(inside, drawn) for inside, drawn in plots],
        missing=missing,
        chosen=chosen[0],
        failed=[p for p in data.rest if p["state"] == "failed"],
        pruned=_pruned_table(data),
    )


def sweep_facts(data: SweepData) -> list[tuple[str, str]]:
    """Facts of a sweep for the head of the page: (what, value)."""
    space = data.space
    states: dict[str, int] = {}
    for p in [*data.points, *data.rest]:
        states[p["state"]] = states.get(p["state"], 0) + 1
    area = {"model": "calibrated area model", "yosys": "Yosys", "nextpnr": "Yosys and nextpnr"}[data.row["tool"]]
    weights = [name + (f" x {w:g}" if (w := space.weights[name]) != 1 else "") for name in data.networks]
    return [
        ("points", ", ".join(f"{count} {state}" for state, count in states.items())),
        ("networks", ", ".join(weights)),
        ("base", f"{space.base.name}; search: {space.method}"),
        ("axes", "; ".join(f"{axis.field} {', '.join(map(str, axis.values))}" for axis in space.axes) or "none"),
        ("constraints", "; ".join(c.text for c in space.constraints) or "none"),
        ("made small", ", ".join(o.text for o in space.objectives)),
        *([("board", space.board)] if space.board is not None else []),
        ("area", f"{area}, {space.family}{_beyond(data, 'area')}"),
        ("clock", _clock(data) + _beyond(data, "clock")),
        ("schedule search", f"effort {data.row['effort']}"),
        ("swept", f"{data.row['started']} to {data.row['finished'] or '(not finished)'}"),
        ("sweep", str(data.row["id"])),
    ]


def _beyond(data: SweepData, model: str) -> str:
    """Returns a sentence that counts the points for which a model was not calibrated."""
    count = sum(bool(beyond(data, p).get(model)) for p in data.points)
    return f"; {count} of {len(data.points)} points beyond its calibration" if count else ""


def _clock(data: SweepData) -> str:
    if data.space.clock is not None:
        return f"{data.space.clock.text} MHz"
    if data.row["tool"] == "nextpnr":
        return "nextpnr"
    return "calibrated model" if data.space.clock_model else "none: cycles"


def _points_table(data: SweepData) -> dict[str, Any]:
    shown = [key for key in _COLUMNS if any(key in p["metrics"] for p in data.points)]
    rows = []
    for p in sorted(data.points, key=lambda p: (p["state"] != "done", p["metrics"].get("objective0", 0))):
        metrics = p["metrics"]
        cells = [(str(p["assignment"][name]), p["assignment"][name]) for name in data.varied]
        for key in shown:
            value = metrics.get(key, 0)
            cells.append((f"{value:.0%}" if key == "utilization" else number(value), value))
        rows.append({"number": p["number"], "cells": cells, "front": p["number"] in data.front, "reason": p["reason"]})
    return {"heads": [*data.varied, *(_HEADINGS.get(key, key) for key in shown)], "rows": rows}


def _pruned_table(data: SweepData) -> dict[str, Any]:
    """The points that were left out before full effort: their axes, what they have at least, and why."""
    pruned = [p for p in data.rest if p["state"] == "pruned"]
    axes = [axis.field for axis in data.space.axes if len(axis.values) > 1]
    rows = [
        [str(p["number"]), *(str(p["assignment"].get(name, "")) for name in axes),
         number((p["metrics"] or {}).get("cycles", 0)), p["reason"]]
        for p in pruned
    ]  # fmt: skip
    rungs = Counter(str(p["reason"]).partition(":")[0] for p in pruned)
    text = ", ".join(f"{count} by the {rung}" for rung, count in rungs.items())
    return {"heads": ["point", *axes, "cycles at least"], "rows": rows, "text": text}


def network_table(data: SweepData, name: str, digest: str) -> dict[str, Any]:
    """The points that run a network in the least time, or in the fewest cycles where there is no clock."""
    found = [(data.results[key], p) for p in data.feasible if (key := (p["point"], digest)) in data.results]
    clocks = [Clock(p["metrics"]["clock_mhz"], "sweep") if "clock_mhz" in p["metrics"] else None for _, p in found]
    timed = bool(found) and all(clocks)
    rows = []
    for (result, p), clock in zip(found, clocks):
        cycles = result["cycles"]
        times = clock.describe(cycles) if timed and clock is not None else {}
        rows.append((times.get("milliseconds", cycles), times, p, result))
    rows.sort(key=lambda row: row[0])
    best = []
    for _, times, p, result in rows[:_BEST]:
        spent = [
            f"{times['clock_mhz']:.1f}", show(times["milliseconds"]), number(times["inferences_per_second"] or 0)
        ] if times else []  # fmt: skip
        best.append([
            str(p["number"]), *(str(p["assignment"][axis]) for axis in data.varied), *spent, f"{result['cycles']:,}",
            f"{result['utilization']:.0%}", f"{result['dram_read_bytes'] + result['dram_written_bytes']:,}",
            f"{result['npu_mac_fraction']:.1%}",
        ])  # fmt: skip
    heads = [
        "point",
        *data.varied,
        *(["MHz", "ms", "inferences/s"] if timed else []),
        "cycles",
        "util",
        "DRAM bytes",
        "MACs on NPU",
    ]
    spread = f"{rows[-1][0] / rows[0][0]:.1f}" if rows and rows[0][0] else ""
    unit = "time" if timed else "cycles"
    return {"name": name, "heads": heads, "rows": best, "count": len(rows), "spread": spread, "unit": unit}


def _inside_table(found: Inside, plots: Sequence[Plot]) -> dict[str, Any]:
    model = meter().load()
    energy = model.energy(found.config, found.events.sum(axis=0))
    return {
        "network": found.name,
        "plots": plots,
        "cycles": found.cycles,
        "utilization": found.bound / found.cycles if found.cycles else 0.0,
        "layers": _layers(found),
        "energy": energy.to_dict(),
        "causes": ", ".join(f"{cause} {pj / energy.total:.0%}" for cause, pj in energy.causes().items() if pj),
        "energy_model": model.sentence(),
        "losses": [(key, LOSSES[key], n, n / max(1, found.cycles)) for key, n in found.losses.items() if n],
    }


def page_title(data: SweepData) -> str:
    """The page's title: networks and axes of the sweep; its id is among the facts."""
    axes, networks = list(data.varied), list(data.networks)
    shown = [f"{', '.join(some[:3])}{' and more' if len(some) > 3 else ''}" for some in (axes, networks)]
    return f"Sweep of {shown[0] or 'one point'} over {shown[1]}"


def _layers(found: Inside) -> list[list[str]]:
    rows = []
    for row, energy in zip(found.rows, found.energies(meter().load()), strict=True):
        worst = sorted(((n, key) for key, n in row.losses.items() if n > 0), reverse=True)[:2]
        rows.append([
            short_name(row.layer.name, 44), f"{row.layer.macs:,}", f"{row.bound:,}", f"{row.cycles:,}",
            f"{row.utilization:.0%}" if row.cycles else "", f"{energy.total / 1e6:,.4g}",
            ", ".join(f"{key} {n:,}" for n, key in worst),
        ])  # fmt: skip
    return rows
