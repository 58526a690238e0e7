"""Cycles of the zoo's networks on the cycle-level simulator, beside bounds, targets and another NPU's estimates.

`python -m tilewright.measure.network_cycles [--config PRESET|FILE] [--json FILE|-] [--quick]`.

Memory: `MemoryTiming()`, the first beat 64 cycles after its request, then one per cycle. The columns `bar` and
`stretch` are what this project aims at with `base`; `U65-256` is what Arm's Vela estimates for an Ethos-U65 with as
many MACs per cycle, for orientation: another machine, memory and model of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from isa.config import NpuConfig
from simulator.attribution import bound_cycles
from tilewright.cli import common
from tilewright.measure.explain import performance


@dataclass(frozen=True)
class Target:
    """A network and what its cycles are compared with, in thousands; None: no estimate is known."""

    network: str
    bar: int
    stretch: int
    u65: int | None = None
    quick: bool = False


TARGETS = (
    Target("resnet8", 65, 55, 104, quick=True),
    Target("ds_cnn", 27, 20, 54, quick=True),
    Target("vww", 85, 60, 147, quick=True),
    Target("autoencoder", 39, 34, 41, quick=True),
    Target("mobilenet_v2", 2500, 1750, 3405),
    Target("resnet18", 7900, 7300),
    Target("resnet50", 18500, 16500),
)


def measure(
    config: str | Path | NpuConfig = "base", *, quick: bool = False, progress: Callable[..., None] = lambda *_: None
) -> list[dict[str, Any]]:
    """One entry per network; `quick` leaves out the large ones."""
    import tilewright as tw
    from tilewright import zoo

    found = []
    chosen = [t for t in TARGETS if t.quick or not quick]
    for index, target in enumerate(chosen):
        progress(f"measuring {target.network}", index, len(chosen))
        program = tw.compile_program(zoo.build_quantized(target.network), config, cache=False)
        inputs = tw.random_inputs(program)
        with tw.Device("cycle") as device:
            device.load(program)
            start = time.perf_counter()
            device.run(program, inputs)
            seconds = time.perf_counter() - start
            assert device.counters is not None
            bound = bound_cycles(program.layers, program.config)
            entry: dict[str, Any] = {"network": target.network, "config": program.config.name, "macs": program.macs}
            entry |= performance(device.counters, bound)
        entry |= {"bar_cycles": 1000 * target.bar, "stretch_cycles": 1000 * target.stretch}
        entry["ethos_u65_256_cycles"] = 1000 * target.u65 if target.u65 else None
        entry |= {"compile_seconds": program.compile_seconds, "run_seconds": seconds}
        found.append(entry)
    return found


def table(entries: list[dict[str, Any]]) -> Table:
    """For people; * = at or below the bar, ** = at or below the stretch target."""
    config = entries[0]["config"] if entries else ""
    shown = Table(title=f"cycles on {config}, in thousands", title_justify="left")
    shown.add_column("network")
    for heading in ("cycles", "bound", "util", "bar", "stretch", "", "U65-256", "compile s", "run s"):
        shown.add_column(heading, justify="right")
    for e in entries:
        stars = "**" if e["cycles"] <= e["stretch_cycles"] else "*" if e["cycles"] <= e["bar_cycles"] else ""
        cycles = [_thousands(e[key]) for key in ("cycles", "bound_cycles")]
        targets = [_thousands(e[key]) for key in ("bar_cycles", "stretch_cycles")]
        other = _thousands(e["ethos_u65_256_cycles"]) if e["ethos_u65_256_cycles"] else ""
        seconds = f"{e['compile_seconds']:.2f}", f"{e['run_seconds']:.2f}"
        shown.add_row(e["network"], *cycles, f"{e['utilization']:.1%}", *targets, stars, other, *seconds)
    return shown


def _thousands(cycles: int) -> str:
    return f"{cycles / 1000:.1f}" if cycles < 1e6 and cycles % 1000 else f"{cycles / 1000:.0f}"


@click.command(epilog="\b\nExamples:\n  python -m tilewright.measure.network_cycles --quick\n")
@common.config_option
@common.json_option
@click.option("--quick", is_flag=True, help="Only the small networks.")
def main(config: str | None, json_path: str | None, quick: bool) -> None:
    """Cycles of the zoo's networks."""
    common.prepare_json(json_path)
    with common.Working("measuring") as working, common.stdout_for_json(json_path):
        entries = measure(config or "base", quick=quick, progress=working.update)
    if json_path is not None:
        common.emit_json(json_path, entries)
    if json_path != "-":
        common.table_console().print(table(entries))
        click.echo("* the bar is reached, ** the stretch target too (they are for base)")


if __name__ == "__main__":
    main()
