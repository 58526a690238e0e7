"""The data that the page's script draws and compares: points with axes and quantities, and their layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tilewright.runtime.energy import meter
from tilewright.simulator.attribution import LOSSES
from tilewright.sweep.inside import Inside
from tilewright.sweep.report.data import SweepData
from tilewright.sweep.report.inside import Insides

#: Points whose layers are in the page, at most: five networks of 100 layers take 25 kB a point.
MOST_INSIDE = 200
_LABELS = {
    "milliseconds": "time, ms", "cycles": "cycles", "lut": "LUT", "ff": "flip-flops", "dsp": "DSP", "bram": "block RAM",
    "microjoules": "energy, µJ", "chip_microjoules": "energy on the chip, µJ", "dram_bytes": "DRAM bytes",
    "scratchpad_bytes": "scratchpad bytes", "utilization": "utilisation", "clock_mhz": "clock, MHz",
}  # fmt: skip
#: Metrics that are left out: the same as others, or of a single network, of whose energy and bound its layers tell.
_HIDDEN = ("microseconds", "npu_mac_fraction")
_HIDDEN_STARTS = ("chip_microjoules_", "microjoules_", "utilization_")


def page_data(data: SweepData, insides: Insides, chosen: Sequence[int]) -> dict[str, Any]:
    """Returns the data of the page's script, `script.js`, for JSON."""
    keys = _keys(data)
    objectives = {f"objective{n}": o.text for n, o in enumerate(data.space.objectives)}
    kept = _with_layers(data, chosen)
    networks = []
    for name in data.networks:
        found = {number: inside for (number, network), inside in insides.items() if network == name and number in kept}
        members = list(dict.fromkeys(m.name for inside in found.values() for row in inside.rows for m in row.members))
        place = {member: n for n, member in enumerate(members)}
        layers = {number: _layers(inside, place) for number, inside in sorted(found.items())}
        networks.append({"name": name, "members": members, "points": layers})
    return {
        "axes": [
            {"name": axis, "values": sorted({p["assignment"][axis] for p in data.points})} for axis in data.varied
        ],
        "quantities": [
            {"key": key, "label": _LABELS.get(key, objectives.get(key, key)), "main": key in {*_LABELS, *objectives}}
            for key in keys
        ],
        "latency": data.latency.key,
        "plotted": [_plotted(data, keys, n) for n in (len(objectives) - 1, 0)],
        "points": [
            {"number": p["number"], "state": p["state"], "reason": p["reason"], "front": p["number"] in data.front,
             "axes": [p["assignment"][axis] for axis in data.varied], "values": [p["metrics"][key] for key in keys]}
            for p in data.points
        ],
        "networks": networks,
        "losses": list(LOSSES),
        "chosen": list(chosen),
    }  # fmt: skip


def json_text(found: dict[str, Any]) -> str:
    """The data as JSON that can stand in a script element, whatever names are in it."""
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _keys(data: SweepData) -> list[str]:
    """Metrics that all points have and that differ between some; the quantities of the fronts first."""
    shared = set.intersection(*(set(p["metrics"]) for p in data.points))
    texts = {o.text for o in data.space.objectives}
    plain = {f"objective{n}" for n, o in enumerate(data.space.objectives) if o.text in shared | {"microseconds"}}
    order = dict.fromkeys([*(q.key for q in data.quantities), *_LABELS, *texts, *sorted(shared)])
    differing = {key for key in shared if len({p["metrics"][key] for p in data.points}) > 1} | {data.latency.key}
    shown = differing - plain - set(_HIDDEN)
    return [key for key in order if key in shown and not key.startswith(_HIDDEN_STARTS)]


def _plotted(data: SweepData, keys: Sequence[str], objective: int) -> str:
    """The metric that stands for an objective in the plot."""
    text = data.space.objectives[objective].text
    key = "milliseconds" if text == "microseconds" else text
    return next((k for k in (key, f"objective{objective}") if k in keys), data.latency.key)


def _with_layers(data: SweepData, chosen: Sequence[int]) -> set[int]:
    """Points whose layers the page has: the chosen ones, the front, then the best by the first objective."""
    ranked = sorted(data.points, key=lambda p: (p["state"] != "done", p["metrics"]["objective0"], p["number"]))
    return set([*chosen, *data.front, *(p["number"] for p in ranked)][: MOST_INSIDE + len(chosen)])


def _layers(found: Inside, place: dict[str, int]) -> list[list[Any]]:
    """Rows of a network on a point: members, cycles, bound, nJ, and pairs of cause and lost cycles."""
    energies = meter().load().totals(found.config, found.events)
    rows = []
    for row, energy in zip(found.rows, energies.tolist(), strict=True):
        lost = [part for n, key in enumerate(LOSSES) if row.losses[key] for part in (n, row.losses[key])]
        rows.append([[place[m.name] for m in row.members], row.cycles, row.bound, round(energy / 1e3), lost])
    return rows
