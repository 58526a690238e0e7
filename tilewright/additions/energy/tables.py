"""Energy for people: tables by layer and cause, and lines about the model."""

from __future__ import annotations

from rich import box
from rich.table import Table

from tilewright.isa.config import NpuConfig
from tilewright.measure.explain import Explanation
from tilewright.measure.labels import short_name
from tilewright.runtime.energy import Energy, EnergyModel

#: Headings of the causes.
_COLUMNS = {
    "clock": "clock",
    "array": "array",
    "vector": "vector",
    "transfer": "transfer",
    "fetch": "fetch",
    "dram": "DRAM",
}


def microjoules(pj: float) -> str:
    """pJ as µJ with three digits."""
    uj = pj / 1e6
    return f"{uj:,.0f}" if uj >= 99.95 else f"{uj:.1f}" if uj >= 9.995 else f"{uj:.2f}"


def table(found: Explanation, width: int) -> Table:
    """µJ of each layer, and per cent of it by cause."""
    shown = Table(
        title=f"{found.program.name} for {found.program.config.name}: µJ per layer, and per cent of them",
        title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_footer=True,
    )  # fmt: skip
    room = max(12, min(max((len(row.layer.name) for row in found.rows), default=0), width - 64))
    sums = _cells(found.energy)
    shown.add_column("layer", footer="all", no_wrap=True)
    for heading, footer in zip(("µJ", *_COLUMNS.values()), sums):
        shown.add_column(heading, footer=footer, justify="right", no_wrap=True)
    for row, energy in zip(found.rows, found.energies):
        shown.add_row(short_name(row.layer.name, room), *_cells(energy))
    return shown


def _cells(energy: Energy) -> list[str]:
    total = energy.total or 1.0
    causes = energy.causes()
    return [microjoules(energy.total), *(f"{100 * causes[cause] / total:.0f}" for cause in _COLUMNS)]


def sentences(energy: Energy, model: EnergyModel, config: NpuConfig) -> list[str]:
    """Returns the lines under the table."""
    lines = [
        f"energy {microjoules(energy.total)} µJ: on the chip {microjoules(energy.chip)} (gates and clock "
        f"{microjoules(sum(energy.logic.values()))}, memories {microjoules(sum(energy.memories.values()))}), DRAM "
        f"{microjoules(energy.dram)}; clock: what every cycle costs, also an idle one",
        model.sentence(),
    ]
    if beyond := model.beyond(config):
        lines.append(f"beyond the machines it was calibrated on, so that the error may be larger: {', '.join(beyond)}")
    return lines + staleness(model)


def staleness(model: EnergyModel) -> list[str]:
    """A warning line if designs of calibration machines are known to have changed. Where that is not known (`--json`
    has `"stale": null`) there is none: a user could not act upon it."""
    if not model.changed:
        return []
    return ["the RTL has changed since the energy was calibrated: make energy-truth in a checkout measures it anew"]
