"""Words about a sweep: which point to take, what limits it, what the next step would bring, what each axis does."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tilewright.fpga import area, fmax
from tilewright.simulator.attribution import LOSSES
from tilewright.sweep.outcome import left_to_cpu
from tilewright.sweep.report.data import Quantity, SweepData, effect, fitted
from tilewright.sweep.report.inside import Insides
from tilewright.sweep.report.text import number

#: Points no worse than the best by this factor in the first objective count as equally good.
NEAR = 1.05


@dataclass(frozen=True)
class Advice:
    """A recommendation in words.

    Attributes:
        point: number of the recommended point, None where no point keeps all constraints.
        sentences: why, what limits it, and what one step further would bring.
    """

    point: int | None
    sentences: list[str]


def advise(data: SweepData, insides: Insides) -> Advice:
    """Recommends the least point by the last objective among those within 5 % of the best by the first one."""
    if not data.front:
        return Advice(None, ["No point keeps all constraints.", *_constraints(data)])
    objectives = [objective.text for objective in data.space.objectives]
    first, last = "objective0", f"objective{len(objectives) - 1}"
    best = data.point(data.front[0])
    near = [p for p in data.feasible if p["metrics"][first] <= best["metrics"][first] * NEAR]
    taken = min(near, key=lambda p: (p["metrics"][last], p["metrics"][first], p["number"]))
    said = [f"Best by {objectives[0]}: {_values(data, best)}."]
    if taken is best:
        others = (
            f"no point within 5 % of it has less {objectives[-1]}" if len(objectives) > 1 else "it is the only goal"
        )
        said.append(f"Recommended: point {best['number']}, {machine(data, best)}; {others}.")
    else:
        more = taken["metrics"][first] / best["metrics"][first] - 1
        said.append(
            f"Recommended: {_values(data, taken)}. It has the least {objectives[-1]} within 5 % of the best: "
            f"{more:.1%} more {objectives[0]}, {_less(taken, best, last)} less {objectives[-1]}."
        )
    balanced = _balanced(data)
    if balanced is not None and balanced["number"] not in (taken["number"], best["number"]):
        said.append(f"The product of {objectives[0]} and {objectives[-1]} is least at {_values(data, balanced)}.")
    if unlike := left_to_cpu(data.feasible):
        said.append(f"{unlike[:1].upper()}{unlike[1:]}.")
    said += [*_limits(data, insides, taken), *_step(data, taken), *_extrapolated(data, taken), *_constraints(data)]
    return Advice(taken["number"], said)


def machine(data: SweepData, point: dict[str, Any]) -> str:
    """A point in words: the size of its array where the sweep varies it, and the other axes."""
    varied = dict.fromkeys(data.varied)
    words = []
    if {"block_in", "block_out"} & set(varied):
        config = data.machine(point["number"]).config
        words.append(f"{config.block_in} x {config.block_out}")
    words += [f"{name} {point['assignment'][name]}" for name in varied if name not in ("block_in", "block_out")]
    return ", ".join(words) or "the only machine"


def _values(data: SweepData, point: dict[str, Any]) -> str:
    values = [f"{o.text} {number(point['metrics'][f'objective{n}'])}" for n, o in enumerate(data.space.objectives)]
    return f"point {point['number']} ({machine(data, point)}) with {', '.join(values)}"


def _less(point: dict[str, Any], other: dict[str, Any], key: str) -> str:
    base = other["metrics"][key]
    return f"{1 - point['metrics'][key] / base:.1%}" if base else "0%"


def _balanced(data: SweepData) -> dict[str, Any] | None:
    """The point of the front with the least product of the first and the last objective; None for a single one."""
    keys = ("objective0", f"objective{len(data.space.objectives) - 1}")
    front = [data.point(n) for n in data.front]
    if keys[0] == keys[1] or any(p["metrics"][key] <= 0 for p in front for key in keys):
        return None
    return min(front, key=lambda p: p["metrics"][keys[0]] * p["metrics"][keys[1]])


def _limits(data: SweepData, insides: Insides, point: dict[str, Any]) -> list[str]:
    """Says what the cycles of a point go to, over all networks by their weights."""
    found = [(data.space.weights[name], insides.get((point["number"], name))) for name in data.networks]
    known = [(weight, inside) for weight, inside in found if inside is not None and inside.cycles]
    if not known or len(known) < len(found):
        return []
    cycles = sum(weight * inside.cycles for weight, inside in known)
    steps = sum(weight * row.compute for weight, inside in known for row in inside.rows) / cycles
    moved = sum(weight * inside.bound for weight, inside in known) / cycles - steps
    losses = {key: sum(weight * inside.losses[key] for weight, inside in known) / cycles for key in LOSSES}
    worst = [key for key in sorted(losses, key=lambda key: -losses[key])[:2] if losses[key] >= 0.005]
    text = (
        f"What limits it: of its cycles {steps:.0%} are steps of the array, {moved:.0%} transfers that none can avoid"
    )
    if worst:
        text += "; most is lost to " + " and ".join(
            f"{key} ({losses[key]:.0%}: {LOSSES[key].partition(' (')[0]})" for key in worst
        )
    return [text + "."]


def _step(data: SweepData, point: dict[str, Any]) -> list[str]:
    """Says which single axis would improve the first objective most, and for what."""
    objectives = [objective.text for objective in data.space.objectives]
    here, last = point["assignment"], f"objective{len(objectives) - 1}"
    steps = []
    for p in data.feasible:
        changed = [name for name in here if p["assignment"][name] != here[name]]
        if len(changed) == 1 and p["metrics"]["objective0"] < point["metrics"]["objective0"]:
            steps.append((p["metrics"]["objective0"], p["metrics"][last], p["number"], changed[0]))
    if not steps:
        return _held(data, here)
    value, cost, chosen, axis = min(steps)
    text = f"One step further: {axis} {here[axis]} to {data.point(chosen)['assignment'][axis]} (point {chosen}) "
    text += f"has {1 - value / point['metrics']['objective0']:.1%} less {objectives[0]}"
    if len(objectives) > 1 and point["metrics"][last]:
        text += f" for {cost / point['metrics'][last] - 1:+.1%} {objectives[-1]}"
    return [text + "."]


def beyond(data: SweepData, point: dict[str, Any]) -> dict[str, list[str]]:
    """The sizes of a point that the models of area and clock were not calibrated on, by "area" and "clock"."""
    config, space, tool = data.machine(point["number"]).config, data.space, data.row["tool"]
    found = {}
    if tool == "model":
        found["area"] = area.load(space.family).beyond(config)
    if tool != "nextpnr" and space.clock is None and space.clock_model:
        found["clock"] = fmax.load(space.family).beyond(config)
    return found


def _extrapolated(data: SweepData, point: dict[str, Any]) -> list[str]:
    return [
        f"Its {name} is extrapolated: the model of {data.space.family} was not calibrated on {', '.join(sizes)}."
        for name, sizes in beyond(data, point).items()
        if sizes
    ]


def _held(data: SweepData, here: dict[str, int]) -> list[str]:
    """Says which steps along a single axis break a constraint."""
    broken: dict[str, list[str]] = {}
    for p in [*data.points, *data.rest]:
        changed = [name for name in here if p["assignment"].get(name) != here[name]]
        if p["state"] == "infeasible" and len(changed) == 1:
            axis = changed[0]
            broken.setdefault(_constraint(p), []).append(f"{axis} {here[axis]} to {p['assignment'][axis]}")
    return [f"It is held by {text}, which is broken by {', '.join(steps)}." for text, steps in broken.items()]


def _constraint(point: dict[str, Any]) -> str:
    """The constraint that an infeasible point breaks, as the reason of its state names it."""
    return str(point["reason"]).partition(" by the ")[0].removeprefix("constraint ")


def _constraints(data: SweepData) -> list[str]:
    """Says which constraints were broken, and by how many points."""
    broken = Counter(_constraint(p) for p in [*data.points, *data.rest] if p["state"] == "infeasible")
    total = len(data.points) + len(data.rest)
    return [f"Of {total} points {count} break {text}." for text, count in broken.most_common()]


def axis_table(data: SweepData) -> dict[str, Any]:
    """Returns the effect of each axis from its first value to its last, all else equal, the strongest first. Where no
    points differ in the axis only, by a fit over all of them, marked as such."""
    quantities: list[Quantity] = data.changing
    fits = {q.key: fitted(data, q.key) for q in quantities}
    rows = []
    for axis in data.varied:
        found = {q.key: effect(data, axis, q.key) for q in quantities}
        cells = []
        strength = []
        for key, each in found.items():
            low, middle, high = each.low[-1], each.middle[-1], each.high[-1]
            exact, fit = math.isfinite(middle), fits[key].get(axis)
            text = f"{middle:.2f} ({low:.2f} to {high:.2f})" if exact else f"{fit:.2f} by a fit" if fit else "no pairs"
            cells.append(text)
            strength.append(_spread(each.middle) if exact or not fit else abs(math.log(fit)))
        values = next(iter(found.values())).values if found else []
        rows.append((strength, [axis, f"{values[0]} to {values[-1]}" if values else "", *cells]))
    rows.sort(key=lambda row: [-s for s in row[0]])
    return {"heads": ["axis", "values", *(q.label.split(",")[0] for q in quantities)], "rows": [row for _, row in rows]}


def _spread(middle: list[float]) -> float:
    """The logarithm of the largest over the smallest mean effect; 0 where none is known."""
    finite = [value for value in middle if math.isfinite(value) and value > 0]
    return math.log(max(finite) / min(finite)) if finite else 0.0
